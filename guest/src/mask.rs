//! Sets of CPUs (`cpumask`).

use core::iter;

use holdfast_locks::CpuId;

/// The most CPUs in a set.
pub(crate) const CPUS_MAX: u32 = 4096;
const WORDS: usize = CPUS_MAX as usize / 32;

/// A set of CPUs, iterated in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuMask {
    words: [u32; WORDS],
}

impl CpuMask {
    pub(crate) const EMPTY: CpuMask = CpuMask { words: [0; WORDS] };

    pub(crate) fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.0 as usize / 32] |= 1 << (cpu.0 % 32);
    }

    pub(crate) fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.0 as usize / 32] &= !(1 << (cpu.0 % 32));
    }

    /// Replaces CPUs 32 × `word` to 32 × `word` + 31 by those whose bits are set.
    pub(crate) fn set_word(&mut self, word: usize, bits: u32) {
        self.words[word] = bits;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> + Clone + use<> {
        let words = self.words;
        (0..WORDS).flat_map(move |index| bits(words[index]).map(move |bit| CpuId(index as u32 * 32 + bit)))
    }
}

/// The numbers of the set bits of `word`, in ascending order.
fn bits(word: u32) -> impl Iterator<Item = u32> + Clone {
    let without_first = |word: &u32| word & word.wrapping_sub(1);
    let left = iter::successors(Some(word), move |word| Some(without_first(word)));
    left.take_while(|word| *word != 0).map(u32::trailing_zeros)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_set_contains_what_was_inserted_and_not_removed() {
        let mut mask = CpuMask::EMPTY;
        assert!(mask.is_empty());
        for cpu in [CPUS_MAX - 1, 0, 31, 32, 700] {
            mask.insert(CpuId(cpu));
        }
        mask.remove(CpuId(31));
        assert_eq!(
            mask.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
            [0, 32, 700, CPUS_MAX - 1]
        );
        assert_eq!(mask.count(), 4);
        let mut mask = CpuMask::EMPTY;
        (0..33).for_each(|cpu| mask.insert(CpuId(cpu)));
        assert_eq!(mask.count(), 33);
    }
}
