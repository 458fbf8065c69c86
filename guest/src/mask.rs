//! Sets of CPUs (`cpumask`).

use alloc::vec::Vec;
use core::iter;

use holdfast_locks::CpuId;

/// Words of a set that need no allocation: 1024 CPUs.
const NEAR: usize = 32;

/// A set of CPUs, iterated in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct CpuMask {
    near: [u32; NEAR],
    /// The words after those.
    far: Vec<u32>,
    /// Number of words that may be other than zero.
    words: usize,
}

impl CpuMask {
    pub(crate) const EMPTY: CpuMask = CpuMask {
        near: [0; NEAR],
        far: Vec::new(),
        words: 0,
    };

    pub(crate) fn insert(&mut self, cpu: CpuId) {
        *self.word(cpu.0 as usize / 32) |= 1 << (cpu.0 % 32);
    }

    pub(crate) fn remove(&mut self, cpu: CpuId) {
        let word = cpu.0 as usize / 32;
        if word < self.words {
            *self.word(word) &= !(1 << (cpu.0 % 32));
        }
    }

    /// Replaces CPUs 32 × `word` to 32 × `word` + 31 by those whose bits are set.
    pub(crate) fn set_word(&mut self, word: usize, bits: u32) {
        if bits != 0 || word < self.words {
            *self.word(word) = bits;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    pub(crate) fn count(&self) -> u32 {
        self.words().map(u32::count_ones).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> + Clone {
        let words = self.words().enumerate();
        words.flat_map(|(index, word)| bits(word).map(move |bit| CpuId(index as u32 * 32 + bit)))
    }

    fn words(&self) -> impl Iterator<Item = u32> + Clone {
        let near = &self.near[..self.words.min(NEAR)];
        near.iter().chain(&self.far).copied()
    }

    fn word(&mut self, word: usize) -> &mut u32 {
        self.words = self.words.max(word + 1);
        if word < NEAR {
            return &mut self.near[word];
        }
        let far = word - NEAR;
        if far >= self.far.len() {
            self.far.resize(far + 1, 0);
        }
        &mut self.far[far]
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
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::*;

    /// CPUs around each border: of a word, of the words that need no allocation, and of what locks can name.
    const BORDERS: [u32; 12] = [0, 31, 32, 700, 1023, 1024, 1055, 1056, 4095, 4096, 16_384, 1_048_575];

    #[test]
    fn a_set_contains_what_was_inserted_and_not_removed() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (mut mask, mut model) = (CpuMask::EMPTY, BTreeSet::new());
            for _ in 0..random(40) {
                let cpu = BORDERS[random(12) as usize];
                match random(3) {
                    0 => {
                        mask.remove(CpuId(cpu));
                        model.remove(&cpu);
                    }
                    1 => {
                        let bits = random(1 << 32) as u32 & random(1 << 32) as u32;
                        mask.set_word(cpu as usize / 32, bits);
                        let first = cpu / 32 * 32;
                        model.retain(|kept| kept / 32 != cpu / 32);
                        model.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
                    }
                    _ => {
                        mask.insert(CpuId(cpu));
                        model.insert(cpu);
                    }
                }
            }
            let found: Vec<u32> = mask.iter().map(|cpu| cpu.0).collect();
            assert_eq!(found, model.iter().copied().collect::<Vec<_>>());
            assert_eq!(mask.count(), model.len() as u32);
            assert_eq!(mask.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn sets_of_common_guests_and_the_bits_that_they_lack_allocate_nothing() {
        let mut mask = CpuMask::EMPTY;
        mask.insert(CpuId(1023));
        mask.remove(CpuId(1 << 20));
        mask.set_word(1 << 15, 0);
        assert_eq!(mask.far.capacity(), 0);
    }
}
