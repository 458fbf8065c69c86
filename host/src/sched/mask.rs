//! Sets of pCPUs.

use alloc::boxed::Box;
use alloc::vec;

/// A set of pCPUs, of fixed capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    words: Box<[u64]>,
}

impl Mask {
    /// Returns the empty set, with room for `pcpus`.
    pub(crate) fn new(pcpus: usize) -> Mask {
        Mask {
            words: vec![0; pcpus.div_ceil(64)].into_boxed_slice(),
        }
    }

    pub(crate) fn set(&mut self, pcpu: u32, member: bool) {
        let (word, bit) = (pcpu as usize / 64, 1 << (pcpu % 64));
        if member {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    pub(crate) fn has(&self, pcpu: u32) -> bool {
        self.words[pcpu as usize / 64] >> (pcpu % 64) & 1 == 1
    }

    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the lowest member that is at least `from`.
    pub(crate) fn first_from(&self, from: u32) -> Option<u32> {
        let start = from as usize / 64;
        for (index, &word) in self.words.iter().enumerate().skip(start) {
            let word = if index == start {
                word & (u64::MAX << (from % 64))
            } else {
                word
            };
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
        }
        None
    }

    /// Returns the lowest member.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first_from(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order() {
        let mut mask = Mask::new(200);
        for pcpu in [3, 64, 199] {
            mask.set(pcpu, true);
        }
        assert_eq!(mask.count(), 3);
        assert_eq!(mask.first(), Some(3));
        assert_eq!(mask.first_from(4), Some(64));
        assert_eq!(mask.first_from(65), Some(199));
        mask.set(199, false);
        assert_eq!(mask.first_from(65), None);
        assert!(mask.has(64) && !mask.has(63));
    }
}
