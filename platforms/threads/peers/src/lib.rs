//! Locks of C libraries as raw locks of `lock_api`: what the Holdfast locks are measured beside.
//!
//! [`PthreadMutex`] and [`PthreadSpinlock`] are always there; those of [`ck`] only where Concurrency Kit is installed.

#![expect(unsafe_code, reason = "calls C, and vouches for the exclusion of C's locks")]

pub mod affinity;
pub mod ck;

pub mod clock;

use core::cell::UnsafeCell;

use lock_api::{GuardNoSend, RawMutex};

/// `pthread_mutex_t` of the default type.
pub struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made to be used by several threads at the same time.
unsafe impl Sync for PthreadMutex {}
// SAFETY: nothing remembers where a mutex is that nobody holds or waits for, in the C libraries of Linux.
unsafe impl Send for PthreadMutex {}

// SAFETY: POSIX promises exclusion. The C libraries of Linux let a mutex be dropped while held.
unsafe impl RawMutex for PthreadMutex {
    const INIT: Self = PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // SAFETY: initialised by `INIT`.
        let error = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(error, 0, "pthread_mutex_lock failed");
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // SAFETY: initialised by `INIT`.
        let error = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        (error == 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds it, on this thread: the guard does not change threads.
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

/// What `pthread_spin_init` writes: in glibc on x86, 1 is free; elsewhere, and in musl, 0.
const FREE: libc::pthread_spinlock_t = if cfg!(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "x86")
)) {
    1
} else {
    0
};

/// `pthread_spinlock_t`, private to the process.
pub struct PthreadSpinlock(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: made to be used by several threads at the same time.
unsafe impl Sync for PthreadSpinlock {}
// SAFETY: nothing remembers where a spinlock is that nobody waits for.
unsafe impl Send for PthreadSpinlock {}

// SAFETY: POSIX promises exclusion.
unsafe impl RawMutex for PthreadSpinlock {
    const INIT: Self = PthreadSpinlock(UnsafeCell::new(FREE));

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // SAFETY: initialised by `INIT`.
        let error = unsafe { libc::pthread_spin_lock(self.0.get()) };
        assert_eq!(error, 0, "pthread_spin_lock failed");
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // SAFETY: initialised by `INIT`.
        let error = unsafe { libc::pthread_spin_trylock(self.0.get()) };
        (error == 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds it.
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
        // SAFETY: `made` is ours.
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
    }
}
