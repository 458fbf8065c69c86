//! How many CPUs this process may use at once: by affinity, by what is online, and by the quota of its control group.
//!
//! Looks are one system call each: when the code is loaded, and by threads that are about to sleep, at most every
//! [`INTERVAL_NS`]. So a change of affinity, or a CPU that goes on or off line, is seen. The quota stands in files,
//! which no waiting thread may open. So only [`look_at_allowed_cpus`], which a program calls, sees a quota.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;

use crate::os;

/// The time between two looks.
const INTERVAL_NS: u64 = 100_000_000;

/// The number of CPUs as of the last look, or 0 before the first one.
static CPUS: AtomicU32 = AtomicU32::new(0);
/// The quota in CPUs, or `u32::MAX` if no look has found one that matters.
static QUOTA: AtomicU32 = AtomicU32::new(u32::MAX);
/// When the next look is due.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);

/// Returns how many CPUs this process may use at once, as of the last look. At least 1.
pub(crate) fn cpus() -> u32 {
    // ORDERING: Relaxed, here and in all functions below; the numbers order nothing, and threads that look at the same
    // time find out the same.
    match CPUS.load(Relaxed) {
        0 => {
            let found = os::cpus_by_affinity().unwrap_or(1);
            CPUS.store(found, Relaxed);
            found
        }
        known => known,
    }
}

/// Looks again at how many CPUs this process may use at once, by its affinity and by the quota of its control group,
/// and returns the number. Broadcasts to condition variables wake 64 threads for each of them at a time.
///
/// Threads that use locks find the affinity and its changes by themselves. So a program calls this only if it has a
/// quota: when it starts, and when the quota has changed. The call opens files and allocates.
pub fn look_at_allowed_cpus() -> u32 {
    // The standard library reads files for the quota, which it rounds down.
    let found = os::without_cancellation(|| thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32));
    let affinity = os::cpus_by_affinity().unwrap_or(found);
    QUOTA.store(if found < affinity { found } else { u32::MAX }, Relaxed);
    CPUS.store(found, Relaxed);
    found
}

/// How many threads a broadcast wakes at once for each CPU.
///
/// A crowd that wakes for one mutex costs less than a chain in which each thread wakes the next one: threads wake one
/// after the other anyway, and most find the mutex free. That was so for up to 64 threads for each CPU
/// (docs/programs/types.md, "Condition variables"). Larger crowds were not measured.
const AT_ONCE_PER_CPU: u32 = 64;

/// Returns how many threads a broadcast wakes at once.
pub(crate) fn at_once() -> u32 {
    cpus().saturating_mul(AT_ONCE_PER_CPU)
}

/// Looks again at the affinity if that is due. The calling thread is about to sleep.
pub(crate) fn look_if_due() {
    // Before the first look nothing depends on the number, and to read the clock takes longer than to look here.
    if CPUS.load(Relaxed) == 0 {
        return;
    }
    let (now, next) = (os::now_ns(), NEXT_NS.load(Relaxed));
    if now < next {
        return;
    }
    // Only one thread looks.
    let due = NEXT_NS.compare_exchange(next, now.saturating_add(INTERVAL_NS), Relaxed, Relaxed);
    if due.is_ok()
        && let Some(affinity) = os::cpus_by_affinity()
    {
        CPUS.store(affinity.min(QUOTA.load(Relaxed)), Relaxed);
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Only the first thread of the process is moved, which no other test here needs.
    #[test]
    fn a_change_of_affinity_is_found_by_a_thread_that_sleeps() {
        let before = os::tests::affinity();
        look_at_allowed_cpus();
        for cpus in [1, before.len() as u32] {
            os::tests::set_affinity(&before[..cpus as usize]);
            NEXT_NS.store(0, Relaxed);
            look_if_due();
            assert_eq!(CPUS.load(Relaxed), cpus.min(QUOTA.load(Relaxed)));
            // The next look is not due yet.
            os::tests::set_affinity(&before[..1]);
            look_if_due();
            assert_eq!(CPUS.load(Relaxed), cpus.min(QUOTA.load(Relaxed)));
        }
        os::tests::set_affinity(&before);
        look_at_allowed_cpus();
    }
}
