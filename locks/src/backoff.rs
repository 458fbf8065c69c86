//! Back-off policies: the wait of a test-and-set lock between two tries.

use crate::platform::Platform;

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

/// Returns a number that spreads CPUs and attempts evenly, without state: one round of a multiplicative hash.
fn jitter(cpu: u32, attempt: u32) -> u32 {
    let mixed = (u64::from(cpu) << 32 | u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solo::{Solo, relaxed};

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
