//! The history's hash.

/// Folds 64-bit words into a hash, in order.
#[derive(Clone, Copy, Debug)]
pub struct HistoryHash(u64);

impl HistoryHash {
    /// The hash of no history.
    pub fn new() -> HistoryHash {
        HistoryHash(0x9e37_79b9_7f4a_7c15)
    }

    /// Appends `word`.
    #[inline(always)]
    pub fn add(&mut self, word: u64) {
        // One multiplication and one fold per word: every bit of the state depends on every earlier word.
        let product = u128::from(self.0 ^ word) * 0xa076_1d64_78bd_642f_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32);
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_matter() {
        let hash = |words: &[u64]| {
            let mut hash = HistoryHash::new();
            words.iter().for_each(|&word| hash.add(word));
            hash.value()
        };
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
    }
}
