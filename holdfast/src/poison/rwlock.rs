//! A reader-writer lock with poisoning.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::flag::{Flag, OnPanic};
use super::{LockResult, TryLockResult};

/// A [`holdfast::RwLock`](crate::RwLock) that is poisoned if a thread panics while it holds the lock for writing. Takes
/// the place of [`std::sync::RwLock`].
///
/// ```
/// use holdfast::poison::RwLock;
///
/// let count = RwLock::new(1);
/// assert_eq!(*count.read().unwrap() + *count.read().unwrap(), 2);
/// *count.write().unwrap() += 1;
/// assert_eq!(count.into_inner().unwrap(), 2);
/// ```
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    flag: Flag,
    inner: crate::RwLock<T>,
}

impl<T> RwLock<T> {
    /// Makes an unlocked lock. Usable in a `static`.
    pub const fn new(value: T) -> Self {
        RwLock {
            flag: Flag::new(),
            inner: crate::RwLock::new(value),
        }
    }

    /// Consumes the lock and returns the data.
    ///
    /// # Errors
    /// If the lock is poisoned. The error has the data.
    pub fn into_inner(self) -> LockResult<T> {
        let value = self.inner.into_inner();
        self.flag.check(value)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until the calling thread may read.
    ///
    /// # Errors
    /// If the lock is poisoned. The error has the guard.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.flag.check(RwLockReadGuard(self.inner.read()))
    }

    /// Takes the lock for reading if that needs no waiting.
    ///
    /// # Errors
    /// If the lock was not taken, or is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.flag.check_tried(self.inner.try_read().map(RwLockReadGuard))
    }

    /// Waits until the calling thread may write.
    ///
    /// # Errors
    /// If the lock is poisoned. The error has the guard.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.flag.check(self.write_guard(self.inner.write()))
    }

    /// Takes the lock for writing if that needs no waiting.
    ///
    /// # Errors
    /// If the lock was not taken, or is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let guard = self.inner.try_write();
        self.flag.check_tried(guard.map(|guard| self.write_guard(guard)))
    }

    #[inline]
    fn write_guard<'a>(&'a self, inner: crate::RwLockWriteGuard<'a, T>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard {
            _on_panic: OnPanic::new(&self.flag),
            inner,
        }
    }

    /// Returns whether the lock is poisoned.
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
    /// If the lock is poisoned. The error has the data.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.flag.check(self.inner.get_mut())
    }
}

// After a panic the data cannot be used without notice: that is what the poison is for.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RwLock");
        match self.inner.try_read() {
            Some(data) => shown.field("data", &&*data),
            None => shown.field("data", &format_args!("<locked>")),
        };
        shown.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

/// Access to the data of a [`RwLock`] for reading. A panic with this guard does not poison: it has changed nothing.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized>(crate::RwLockReadGuard<'a, T>);

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Access to the data of a [`RwLock`] for writing.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    // Fields are dropped in this order: the lock is poisoned before it is released.
    _on_panic: OnPanic<'a>,
    inner: crate::RwLockWriteGuard<'a, T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on reading, and lets others read. No writer comes in between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard(crate::RwLockWriteGuard::downgrade(guard.inner))
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
