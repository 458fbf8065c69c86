//! A mutex with poisoning.

use std::fmt;
use std::time::Duration;

use super::common::{access, poisoning};
use super::flag::{Flag, OnPanic};
use super::{LockResult, TryLockResult};

/// A [`holdfast::Mutex`](crate::Mutex) that is poisoned if a thread panics while it holds the lock. Takes the place of
/// [`std::sync::Mutex`].
///
/// ```
/// use std::sync::Arc;
/// use std::thread;
///
/// use holdfast::poison::Mutex;
///
/// let shared = Arc::new(Mutex::new(0));
/// let other = Arc::clone(&shared);
/// let _ = thread::spawn(move || {
///     let _guard = other.lock();
///     panic!("with the lock held");
/// })
/// .join();
/// assert!(shared.is_poisoned());
/// shared.clear_poison();
/// assert_eq!(*shared.lock().unwrap(), 0);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    flag: Flag,
    inner: crate::Mutex<T>,
}

poisoning!(Mutex);

impl<T: ?Sized> Mutex<T> {
    /// Waits until the calling thread holds the lock.
    ///
    /// # Errors
    /// If the mutex is poisoned. The error has the guard.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.flag.check(MutexGuard::new(self, self.inner.lock()))
    }

    /// Takes the lock if that needs no waiting.
    ///
    /// # Errors
    /// If the lock was not taken, or the mutex is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock();
        self.flag.check_tried(guard.map(|guard| MutexGuard::new(self, guard)))
    }

    /// Waits for the lock for at most `timeout`.
    ///
    /// # Errors
    /// If the lock was not taken, or the mutex is poisoned.
    pub fn try_lock_for(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock_for(timeout);
        self.flag.check_tried(guard.map(|guard| MutexGuard::new(self, guard)))
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mutex");
        match self.inner.try_lock() {
            Some(data) => shown.field("data", &&*data),
            None => shown.field("data", &format_args!("<locked>")),
        };
        shown.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

/// Access to the data of a [`Mutex`], which is released when the guard is dropped.
#[must_use = "the mutex is unlocked as soon as the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Fields are dropped in this order: the mutex is poisoned before it is unlocked.
    on_panic: OnPanic<'a>,
    inner: crate::MutexGuard<'a, T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    fn new(mutex: &'a Mutex<T>, inner: crate::MutexGuard<'a, T>) -> Self {
        MutexGuard {
            on_panic: OnPanic::new(&mutex.flag),
            inner,
        }
    }

    pub(super) fn inner(&mut self) -> &mut crate::MutexGuard<'a, T> {
        &mut self.inner
    }

    /// Returns the guard, as an error if the mutex has been poisoned.
    pub(super) fn check(self) -> LockResult<Self> {
        self.on_panic.flag().check(self)
    }
}

access!(mut MutexGuard);
