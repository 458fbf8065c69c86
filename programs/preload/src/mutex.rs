//! The functions of mutexes.

use core::ffi::c_int;
use std::time::Duration;

use libc::{clockid_t, pthread_mutex_t, timespec};
use lock_api::{RawMutex, RawMutexTimed};

use crate::{Lock, layout, real};

/// Locks the mutex.
///
/// # Safety
/// As for the C library's function, here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller passes a mutex, here and below.
    match unsafe { layout::lock(mutex) } {
        Some(lock) => {
            lock.lock();
            0
        }
        // SAFETY: as the caller promises, here and below.
        None => unsafe { real::pthread_mutex_lock(mutex) },
    }
}

/// Locks the mutex if that needs no waiting.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as above.
    match unsafe { layout::lock(mutex) } {
        Some(lock) if lock.try_lock() => 0,
        Some(_) => libc::EBUSY,
        // SAFETY: as above.
        None => unsafe { real::pthread_mutex_trylock(mutex) },
    }
}

/// Locks the mutex before a time of the realtime clock.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, deadline: *const timespec) -> c_int {
    // SAFETY: as above.
    match unsafe { layout::lock(mutex) } {
        // SAFETY: the caller passes a time.
        Some(lock) => unsafe { lock_until(lock, libc::CLOCK_REALTIME, deadline) },
        // SAFETY: as above.
        None => unsafe { real::pthread_mutex_timedlock(mutex, deadline) },
    }
}

/// `pthread_mutex_clocklock`, of glibc since 2.30.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    if clock != libc::CLOCK_REALTIME && clock != libc::CLOCK_MONOTONIC {
        return libc::EINVAL;
    }
    // SAFETY: as above.
    match unsafe { layout::lock(mutex) } {
        // SAFETY: the caller passes a time.
        Some(lock) => unsafe { lock_until(lock, clock, deadline) },
        // SAFETY: as above.
        None => unsafe { real::pthread_mutex_clocklock(mutex, clock, deadline) },
    }
}

/// Unlocks the mutex.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as above.
    match unsafe { layout::lock(mutex) } {
        Some(lock) => {
            // SAFETY: the caller holds it.
            unsafe { lock.unlock() };
            0
        }
        // SAFETY: as above.
        None => unsafe { real::pthread_mutex_unlock(mutex) },
    }
}

/// Ends the use of the mutex.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as above.
    match unsafe { layout::lock(mutex) } {
        Some(lock) if lock.is_locked() => libc::EBUSY,
        Some(_) => {
            // SAFETY: the caller promises that no thread uses it any more.
            unsafe { layout::mark_destroyed(mutex) };
            0
        }
        // SAFETY: as above.
        None => unsafe { real::pthread_mutex_destroy(mutex) },
    }
}

/// Waits for `lock` until the clock shows `deadline`.
///
/// # Safety
/// `deadline` must point to a time.
unsafe fn lock_until(lock: &Lock, clock: clockid_t, deadline: *const timespec) -> c_int {
    /// The other clock may be set meanwhile.
    const STEP: Duration = Duration::from_secs(1);
    if lock.try_lock() {
        return 0;
    }
    // SAFETY: the caller promises that it is a time.
    let deadline = unsafe { deadline.read() };
    if !is_normalized(&deadline) {
        return libc::EINVAL;
    }
    loop {
        let left = left(clock, &deadline);
        if lock.try_lock_for(left.min(STEP)) {
            return 0;
        }
        if left <= STEP && self::left(clock, &deadline).is_zero() {
            return libc::ETIMEDOUT;
        }
    }
}

/// Returns whether the nanoseconds are less than a second.
pub(crate) fn is_normalized(time: &timespec) -> bool {
    (0..1_000_000_000).contains(&time.tv_nsec)
}

/// Returns the time until `deadline`.
fn left(clock: clockid_t, deadline: &timespec) -> Duration {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable. Both clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    let since = |time: &timespec| Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), time.tv_nsec as u32);
    since(deadline).saturating_sub(since(&now))
}

/// Names under which old libraries know some of the functions.
macro_rules! aliases {
    ($($alias:ident = $name:ident;)+) => {$(
        /// An old name of a function above.
        ///
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias(mutex: *mut pthread_mutex_t) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { $name(mutex) }
        }
    )+};
}

aliases! {
    __pthread_mutex_lock = pthread_mutex_lock;
    __pthread_mutex_trylock = pthread_mutex_trylock;
    __pthread_mutex_unlock = pthread_mutex_unlock;
    __pthread_mutex_destroy = pthread_mutex_destroy;
}
