//! Abseil's mutex, which readers can share, and its condition variable. They are function calls here, not inlined as in
//! C++.
//!
//! The types exist even if the library was not installed at compile time, so that users need no `cfg`; see
//! [`INSTALLED`].

#![expect(unsafe_code, reason = "calls C++, and vouches for the exclusion of its locks")]

use core::cell::UnsafeCell;

use lock_api::{GuardNoSend, MutexGuard, RawMutex, RawRwLock};

/// Whether Abseil was installed at compile time. If not, these locks panic when locked.
pub const INSTALLED: bool = cfg!(abseil);

/// The word of each of the two classes.
type Class = UnsafeCell<u64>;

#[cfg(abseil)]
unsafe extern "C" {
    fn holdfast_absl_lock(mutex: *mut u64);
    fn holdfast_absl_unlock(mutex: *mut u64);
    fn holdfast_absl_trylock(mutex: *mut u64) -> u8;
    fn holdfast_absl_reader_lock(mutex: *mut u64);
    fn holdfast_absl_reader_unlock(mutex: *mut u64);
    fn holdfast_absl_reader_trylock(mutex: *mut u64) -> u8;
    fn holdfast_absl_wait(condvar: *mut u64, mutex: *mut u64);
    fn holdfast_absl_notify_one(condvar: *mut u64);
    fn holdfast_absl_notify_all(condvar: *mut u64);
}

#[cfg(not(abseil))]
use missing::*;

/// Stands for the library's functions if it is not installed.
#[cfg(not(abseil))]
mod missing {
    macro_rules! missing {
        ($($name:ident($($argument:ident),+);)+) => {$(
            pub(super) unsafe fn $name($($argument: *mut u64),+) -> u8 {
                let _ = ($($argument),+);
                panic!("Abseil was not installed when this program was compiled");
            }
        )+};
    }
    missing! {
        holdfast_absl_lock(mutex);
        holdfast_absl_unlock(mutex);
        holdfast_absl_trylock(mutex);
        holdfast_absl_reader_lock(mutex);
        holdfast_absl_reader_unlock(mutex);
        holdfast_absl_reader_trylock(mutex);
        holdfast_absl_wait(condvar, mutex);
        holdfast_absl_notify_one(condvar);
        holdfast_absl_notify_all(condvar);
    }
}

/// The class `absl::Mutex`.
#[repr(transparent)]
pub struct Mutex(Class);

// SAFETY: the library's lock is made for use by several threads at the same time.
unsafe impl Sync for Mutex {}
// SAFETY: the library keeps no address of a lock that no thread holds or waits for.
unsafe impl Send for Mutex {}

// SAFETY: the library promises exclusion.
unsafe impl RawMutex for Mutex {
    const INIT: Self = Mutex(UnsafeCell::new(0));

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // SAFETY: zero, as initialized by `INIT`, is an unlocked mutex. Here and below.
        unsafe { holdfast_absl_lock(self.0.get()) };
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // SAFETY: as for `lock`.
        let taken = unsafe { holdfast_absl_trylock(self.0.get()) };
        (taken != 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds the mutex.
        unsafe { holdfast_absl_unlock(self.0.get()) };
    }

    fn is_locked(&self) -> bool {
        self.try_lock().is_none_or(|guard| {
            // SAFETY: just locked.
            unsafe { RawMutex::unlock(self, guard) };
            false
        })
    }
}

// SAFETY: the library promises exclusion.
unsafe impl RawRwLock for Mutex {
    const INIT: Self = <Mutex as RawMutex>::INIT;

    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        // SAFETY: as for `lock`.
        unsafe { holdfast_absl_reader_lock(self.0.get()) };
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        // SAFETY: as for `lock`.
        let taken = unsafe { holdfast_absl_reader_trylock(self.0.get()) };
        (taken != 0).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        // SAFETY: the caller holds the mutex as a reader.
        unsafe { holdfast_absl_reader_unlock(self.0.get()) };
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.lock()
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_lock()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, guard: GuardNoSend) {
        // SAFETY: the caller's.
        unsafe { self.unlock(guard) };
    }

    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }

    fn is_locked_exclusive(&self) -> bool {
        self.try_lock_shared().is_none_or(|guard| {
            // SAFETY: just locked.
            unsafe { self.unlock_shared(guard) };
            false
        })
    }
}

/// The class `absl::CondVar`.
#[repr(transparent)]
pub struct Condvar(Class);

// SAFETY: the library's class is made for use by several threads at the same time.
unsafe impl Sync for Condvar {}
// SAFETY: the library keeps no address of a condition variable that no thread waits for.
unsafe impl Send for Condvar {}

impl Condvar {
    /// Makes a condition variable for which no thread waits.
    #[expect(clippy::new_without_default, reason = "only benchmarks make one")]
    pub const fn new() -> Self {
        Condvar(UnsafeCell::new(0))
    }

    /// Unlocks the mutex of `guard` until a notification, then locks it again. May return earlier.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, Mutex, T>) {
        // SAFETY: the mutex is not unlocked here, but by the call, which locks it again.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        // SAFETY: zero, as initialized by `new`, is without waiters. The caller holds the mutex.
        unsafe { holdfast_absl_wait(self.0.get(), mutex.0.get()) };
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        // SAFETY: as for `wait`.
        unsafe { holdfast_absl_notify_one(self.0.get()) };
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        // SAFETY: as for `wait`.
        unsafe { holdfast_absl_notify_all(self.0.get()) };
    }
}

#[cfg(all(test, abseil))]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_exclude_a_writer() {
        let lock = lock_api::RwLock::<Mutex, u32>::new(1);
        let reader = lock.read();
        assert_eq!(lock.try_read().map(|data| *data), Some(1));
        assert!(lock.try_write().is_none() && lock.is_locked() && !lock.is_locked_exclusive());
        drop(reader);
        *lock.write() = 2;
        assert_eq!(*lock.read(), 2);
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_notified_thread_goes_on_with_the_mutex() {
        let (ready, changed) = (lock_api::Mutex::<Mutex, bool>::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut ready = ready.lock();
                while !*ready {
                    changed.wait(&mut ready);
                }
                *ready = false;
            });
            *ready.lock() = true;
            changed.notify_all();
            changed.notify_one();
        });
        assert!(!*ready.lock());
    }
}
