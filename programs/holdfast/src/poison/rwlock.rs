//! A reader-writer lock with poisoning.

use std::fmt;

use super::common::{access, poisoning};
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

poisoning!(RwLock);

impl<T: ?Sized> RwLock<T> {
    /// Waits until the calling thread may read.
    ///
    /// # Errors
    /// If the lock is poisoned. The error has the guard.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let inner = self.inner.read();
        self.flag.check(RwLockReadGuard { inner })
    }

    /// Takes the lock for reading if that needs no waiting.
    ///
    /// # Errors
    /// If the lock was not taken, or is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read();
        self.flag.check_tried(inner.map(|inner| RwLockReadGuard { inner }))
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
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: crate::RwLockReadGuard<'a, T>,
}

access!(RwLockReadGuard);

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
        let inner = crate::RwLockWriteGuard::downgrade(guard.inner);
        RwLockReadGuard { inner }
    }
}

access!(mut RwLockWriteGuard);
