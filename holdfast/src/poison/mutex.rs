//! A mutex with poisoning.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

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

impl<T> Mutex<T> {
    /// Makes an unlocked mutex. Usable in a `static`.
    pub const fn new(value: T) -> Self {
        Mutex {
            flag: Flag::new(),
            inner: crate::Mutex::new(value),
        }
    }

    /// Consumes the mutex and returns the data.
    ///
    /// # Errors
    /// If the mutex is poisoned. The error has the data.
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.inner.into_inner();
        self.flag.check(value)
    }
}

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

    /// Returns whether the mutex is poisoned.
    pub fn is_poisoned(&self) -> bool {
        self.flag.is_set()
    }

    /// Removes the poison: the caller has put the data in order.
    pub fn clear_poison(&self) {
        self.flag.clear();
    }

    /// Returns the data. An exclusive borrow needs no locking.
    ///
    /// # Errors
    /// If the mutex is poisoned. The error has the data.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.flag.check(self.inner.get_mut())
    }
}

// After a panic the data cannot be used without notice: that is what the poison is for.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
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

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
