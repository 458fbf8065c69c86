//! Back-off: how long to wait between two tries of a test-and-set lock, and between two looks at a busy lock.

use core::sync::atomic::Ordering;

use crate::cpu::platform::{Budget, Platform, look_until};

/// A policy for the time between two tries of a test-and-set lock.
pub trait Backoff {
    /// Waits before try number `attempt`, which counts from 1.
    fn wait<P: Platform>(cpu: &P, attempt: u32);
}

/// One PAUSE between two tries, as in Linux.
#[derive(Debug)]
pub struct NoBackoff;

impl Backoff for NoBackoff {
    #[inline]
    fn wait<P: Platform>(cpu: &P, _attempt: u32) {
        cpu.relax();
    }
}

/// Exponential back-off: the limit doubles after each failure, up to `MAX` PAUSEs.
///
/// The wait is between half of the limit and all of it, so that CPUs that failed together do not try together again. It
/// causes less cache-line traffic than [`NoBackoff`], and the lock stays free for longer before a waiter takes it.
///
/// ```
/// use holdfast_locks::{Exponential, Platform, SpinLock, Tas};
///
/// fn count<P: Platform>(cpu: &P, events: &SpinLock<u64, Tas<Exponential<256>>, P::Word>) {
///     *events.lock(cpu) += 1;
/// }
/// ```
///
/// # Units
/// PAUSEs. The default limit of 1024 is not a measured optimum.
#[derive(Debug)]
pub struct Exponential<const MAX: u32 = 1024>;

impl<const MAX: u32> Backoff for Exponential<MAX> {
    fn wait<P: Platform>(cpu: &P, attempt: u32) {
        let limit = (1u32 << attempt.min(31)).min(MAX).max(1);
        for _ in 0..limit - jitter(cpu.cpu().0, attempt) % limit.div_ceil(2) {
            cpu.relax();
        }
    }
}

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

/// Returns a number that spreads CPUs and attempts evenly, without state: one round of a multiplicative hash.
fn jitter(cpu: u32, attempt: u32) -> u32 {
    let mixed = (u64::from(cpu) << 32 | u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32
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

    #[test]
    fn a_wait_doubles_with_each_attempt_up_to_its_limit() {
        for attempt in 0..64 {
            let before = relaxed();
            Exponential::<256>::wait(&Solo, attempt);
            let (waited, most) = (relaxed() - before, 256 >> 8u32.saturating_sub(attempt));
            assert!(
                waited > most / 2 - u32::from(most > 1) && waited <= most,
                "{waited} at attempt {attempt}"
            );
        }
    }

    #[test]
    fn cpus_and_attempts_wait_for_different_times() {
        let mut times: alloc::vec::Vec<u32> = (0..8)
            .flat_map(|cpu| (0..8).map(move |attempt| jitter(cpu, attempt) % 512))
            .collect();
        times.sort_unstable();
        times.dedup();
        assert!(times.len() > 50, "{} of 64 are different", times.len());
    }
}
