//! Locks of C and C++ libraries as raw locks of `lock_api`, to compare the Holdfast locks with.
//!
//! [`PthreadMutex`] and [`PthreadSpinlock`] are always available, the locks of [`ck`] and [`absl`] only if Concurrency
//! Kit and Abseil are installed.

#![expect(unsafe_code, reason = "calls C, and vouches for the exclusion of C's locks")]

pub mod absl;
pub mod affinity;
pub mod ck;

pub mod clock;

use core::cell::UnsafeCell;

use lock_api::{GuardNoSend, RawMutex};

/// Other C libraries than glibc have no adaptive type.
#[cfg(target_env = "gnu")]
use libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP as ADAPTIVE_INITIALIZER;
#[cfg(not(target_env = "gnu"))]
use libc::PTHREAD_MUTEX_INITIALIZER as ADAPTIVE_INITIALIZER;

/// The `pthread_mutex_t` of the default type, or glibc's adaptive type, which spins before it sleeps.
pub struct PthreadMutex<const ADAPTIVE: bool = false>(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's lock is made for use by several threads at the same time.
unsafe impl<const ADAPTIVE: bool> Sync for PthreadMutex<ADAPTIVE> {}
// SAFETY: the C libraries of Linux keep no address of a mutex that no thread holds or waits for.
unsafe impl<const ADAPTIVE: bool> Send for PthreadMutex<ADAPTIVE> {}

// SAFETY: POSIX promises exclusion. The C libraries of Linux let a mutex be dropped while held.
unsafe impl<const ADAPTIVE: bool> RawMutex for PthreadMutex<ADAPTIVE> {
    const INIT: Self = PthreadMutex(UnsafeCell::new(if ADAPTIVE {
        ADAPTIVE_INITIALIZER
    } else {
        libc::PTHREAD_MUTEX_INITIALIZER
    }));

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // SAFETY: initialized by `INIT`.
        let error = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(error, 0, "pthread_mutex_lock failed");
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // SAFETY: initialized by `INIT`.
        let error = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        (error == 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds the mutex on this thread, because the guard is `!Send`.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }

    fn is_locked(&self) -> bool {
        self.try_lock().is_none_or(|guard| {
            // SAFETY: just locked.
            unsafe { self.unlock(guard) };
            false
        })
    }
}

/// The value that `pthread_spin_init` writes: 1 in glibc on x86, 0 elsewhere and in musl.
const FREE: libc::pthread_spinlock_t = if cfg!(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "x86")
)) {
    1
} else {
    0
};

/// The `pthread_spinlock_t`, private to the process.
pub struct PthreadSpinlock(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: the C library's lock is made for use by several threads at the same time.
unsafe impl Sync for PthreadSpinlock {}
// SAFETY: the C library keeps no address of a spinlock that no thread waits for.
unsafe impl Send for PthreadSpinlock {}

// SAFETY: POSIX promises exclusion.
unsafe impl RawMutex for PthreadSpinlock {
    const INIT: Self = PthreadSpinlock(UnsafeCell::new(FREE));

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // SAFETY: initialized by `INIT`.
        let error = unsafe { libc::pthread_spin_lock(self.0.get()) };
        assert_eq!(error, 0, "pthread_spin_lock failed");
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // SAFETY: initialized by `INIT`.
        let error = unsafe { libc::pthread_spin_trylock(self.0.get()) };
        (error == 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds the spinlock.
        unsafe { libc::pthread_spin_unlock(self.0.get()) };
    }

    fn is_locked(&self) -> bool {
        self.try_lock().is_none_or(|guard| {
            // SAFETY: just locked.
            unsafe { self.unlock(guard) };
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinlock_is_born_as_the_library_makes_it() {
        let mut made = -1;
        // SAFETY: `made` is a local variable.
        let error = unsafe { libc::pthread_spin_init(&mut made, libc::PTHREAD_PROCESS_PRIVATE) };
        assert_eq!((error, made), (0, FREE));
    }

    fn excludes<R: RawMutex + Sync>() {
        let lock = lock_api::Mutex::<R, u64>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        let held = lock.lock();
        assert!(lock.is_locked() && lock.try_lock().is_none());
        drop(held);
        assert!(!lock.is_locked());
        assert_eq!(*lock.try_lock().expect("free"), 20_000);
    }

    #[test]
    fn each_lock_excludes() {
        excludes::<PthreadMutex>();
        excludes::<PthreadSpinlock>();
        if ck::INSTALLED {
            excludes::<ck::FasSpinlock>();
            excludes::<ck::TicketSpinlock>();
        }
        if absl::INSTALLED {
            excludes::<absl::Mutex>();
        }
    }
}
