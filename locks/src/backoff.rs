//! How long a test-and-set lock stays away from a lock that it found taken.

use crate::platform::Platform;

/// A policy for the time between two tries.
pub trait Backoff {
    /// Waits before try number `attempt` (from 1).
    fn wait<P: Platform>(cpu: &P, attempt: u32);
}

/// One PAUSE between two tries, as Linux does.
#[derive(Debug)]
pub struct NoBackoff;

impl Backoff for NoBackoff {
    #[inline]
    fn wait<P: Platform>(cpu: &P, _attempt: u32) {
        cpu.relax();
    }
}

/// Twice as long after each failure, up to `MAX` PAUSEs; between half of that and all of it, so that those who failed
/// together do not come back together. Less line traffic, slower takeover.
///
/// # Units
/// PAUSEs. The default limit of 1024 is a suggestion from memory, not a measured optimum.
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

/// Spreads CPUs and attempts evenly without state: one round of a multiplicative hash.
fn jitter(cpu: u32, attempt: u32) -> u32 {
    let mixed = (u64::from(cpu) << 32 | u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32
}
