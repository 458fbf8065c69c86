//! A clock that is cheap enough to read twice for each acquisition of a lock.

#![expect(unsafe_code, reason = "reads the time-stamp counter; asks the C library")]

use std::time::{Duration, Instant};

/// Returns the time in ticks. On x86-64 a tick is one of the time-stamp counter, which is synchronized across CPUs if
/// Linux uses it as its clock source. Elsewhere a tick is 1 ns. The reading is not serializing: the locked instruction
/// of a lock is a sufficient barrier.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC only reads a register. Linux allows it in user space (CR4.TSD is clear unless a process asks
        // for a fault by prctl).
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::LazyLock;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }
}

/// Returns the nanoseconds per tick, measured against the system's clock for 20 ms.
pub fn ns_per_tick() -> f64 {
    let (start, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(20));
    let (elapsed, last) = (start.elapsed(), ticks());
    elapsed.as_nanos() as f64 / (last - first) as f64
}

/// Returns the period of the kernel's tick in nanoseconds, which is the resolution of the coarse clock. Returns `None`
/// if the system does not report it.
pub fn coarse_period_ns() -> Option<u64> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes `resolution`.
    let error = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    let ns = u64::try_from(resolution.tv_nsec).ok()?;
    (error == 0 && resolution.tv_sec == 0 && ns > 0).then_some(ns)
}
