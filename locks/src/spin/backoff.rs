//! Back-off: how long to wait between two looks at a busy lock.

use core::sync::atomic::Ordering;

use crate::cpu::platform::{Budget, Platform, look_until};

/// The number of PAUSEs after the first look of [`wait_backing_off`].
const PAUSES_FIRST: u32 = 4;
/// The largest number of PAUSEs between two looks: about as long as a short critical section.
const PAUSES_MAX: u32 = 32;

/// Waits like [`Platform::wait_until`], for at most `budget` PAUSEs, but looks at the word less and less often.
///
/// Each look takes the cache line away from the holder of the lock, which then has to wait for it when it releases the
/// lock. With a look after each PAUSE, two threads that take turns were half as fast (AMD EPYC, sections of 30 ns).
pub(crate) fn wait_backing_off<P: Platform>(
    cpu: &P,
    word: &P::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    look_until(cpu, word, budget, order, until, (PAUSES_FIRST, PAUSES_MAX))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::cell::RefCell;
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::cpu::platform::Word;
    use crate::cpu::solo::{Solo, SoloWord, relaxed};

    #[test]
    fn a_wait_looks_less_and_less_often_and_keeps_its_budget() {
        // PAUSEs before each look, from the first one on.
        let all = [0, 4, 12, 28, 60, 92, 100];
        for (budget, looks) in [(0, 1), (3, 1), (4, 2), (27, 3), (28, 4), (60, 5), (100, 7)] {
            let word = SoloWord::new(7);
            let begun = relaxed();
            let looked = RefCell::new(std::vec::Vec::new());
            let look = |value| {
                assert_eq!(value, 7);
                looked.borrow_mut().push(relaxed() - begun);
                false
            };
            assert_eq!(wait_backing_off(&Solo, &word, Budget(budget), Relaxed, look), Err(7));
            let mut expected: std::vec::Vec<_> = all[..looks].to_vec();
            if all[looks - 1] < budget {
                expected.push(budget);
            }
            assert_eq!(*looked.borrow(), expected, "a budget of {budget}");
        }
        assert_eq!(
            wait_backing_off(&Solo, &SoloWord::new(7), Budget(9), Relaxed, |_| true),
            Ok(7)
        );
    }
}
