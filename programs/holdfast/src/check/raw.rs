//! The locks of threads, each with its record.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::time::{Duration, Instant};

use holdfast_threads::{RawCondvar, RawHybrid};
use lock_api::{GuardNoSend, RawMutex, RawMutexTimed, RawRwLock, RawRwLockDowngrade, RawRwLockTimed};

use super::order;
use super::record::Record;
use super::sealed::Recorded;
use super::stack::Stack;

/// [`RawMutex`](crate::RawMutex) with the feature `check`.
#[derive(Debug)]
pub struct CheckedMutex {
    inner: RawHybrid,
    record: Record,
}

/// [`RawRwLock`](crate::RawRwLock) and [`RawBiasedRwLock`](crate::RawBiasedRwLock) with the feature `check`.
#[derive(Debug)]
pub struct CheckedRwLock<R> {
    inner: R,
    record: Record,
}

impl<T: ?Sized> Recorded for crate::Mutex<T> {
    fn record(&self) -> &Record {
        // SAFETY: the record is not the lock: nothing is unlocked.
        unsafe { &self.raw().record }
    }
}

impl<R: RawRwLock, T: ?Sized> Recorded for lock_api::RwLock<CheckedRwLock<R>, T> {
    fn record(&self) -> &Record {
        // SAFETY: as above.
        unsafe { &self.raw().record }
    }
}

/// Checks the order, waits by `lock`, and records that the lock was taken.
fn waiting(record: &Record, shared: bool, lock: impl FnOnce()) {
    let stack = Stack::here();
    order::before(record, shared, &stack);
    lock();
    order::after(record, shared, stack);
}

/// Records a lock that was taken without waiting for it forever.
fn trying(record: &Record, shared: bool, taken: bool) -> bool {
    if taken {
        order::after(record, shared, Stack::here());
    }
    taken
}

impl CheckedMutex {
    /// Waits for `condvar` without the lock.
    ///
    /// # Safety
    /// As for [`RawCondvar::wait`].
    pub(crate) unsafe fn wait(&self, condvar: &RawCondvar, deadline: Option<Instant>) -> bool {
        // After the wait the thread holds the lock for the same reason as before.
        let stack = order::release(&self.record).unwrap_or_else(Stack::here);
        // SAFETY: the caller's.
        let notified = unsafe { condvar.wait(&self.inner, deadline) };
        order::after(&self.record, false, stack);
        notified
    }
}

// SAFETY: the lock is `inner`, which excludes.
unsafe impl RawMutex for CheckedMutex {
    const INIT: Self = CheckedMutex {
        inner: RawHybrid::INIT,
        record: Record::new(),
    };

    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        waiting(&self.record, false, || self.inner.lock());
    }
    fn try_lock(&self) -> bool {
        trying(&self.record, false, self.inner.try_lock())
    }
    unsafe fn unlock(&self) {
        order::release(&self.record);
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock() };
    }
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

// SAFETY: a lock taken before the timeout was taken as without one.
unsafe impl RawMutexTimed for CheckedMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        trying(&self.record, false, self.inner.try_lock_for(timeout))
    }
    fn try_lock_until(&self, timeout: Instant) -> bool {
        trying(&self.record, false, self.inner.try_lock_until(timeout))
    }
}

// SAFETY: the lock is `inner`, which excludes.
unsafe impl<R: RawRwLock> RawRwLock for CheckedRwLock<R> {
    const INIT: Self = CheckedRwLock {
        inner: R::INIT,
        record: Record::new(),
    };

    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        waiting(&self.record, true, || self.inner.lock_shared());
    }
    fn try_lock_shared(&self) -> bool {
        trying(&self.record, true, self.inner.try_lock_shared())
    }
    unsafe fn unlock_shared(&self) {
        order::release(&self.record);
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock_shared() };
    }
    fn lock_exclusive(&self) {
        waiting(&self.record, false, || self.inner.lock_exclusive());
    }
    fn try_lock_exclusive(&self) -> bool {
        trying(&self.record, false, self.inner.try_lock_exclusive())
    }
    unsafe fn unlock_exclusive(&self) {
        order::release(&self.record);
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock_exclusive() };
    }
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: as for `inner`.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for CheckedRwLock<R> {
    unsafe fn downgrade(&self) {
        order::downgrade(&self.record);
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.downgrade() };
    }
}

// SAFETY: a lock taken before the timeout was taken as without one.
unsafe impl<R: RawRwLockTimed> RawRwLockTimed for CheckedRwLock<R> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    fn try_lock_shared_for(&self, timeout: R::Duration) -> bool {
        trying(&self.record, true, self.inner.try_lock_shared_for(timeout))
    }
    fn try_lock_shared_until(&self, timeout: R::Instant) -> bool {
        trying(&self.record, true, self.inner.try_lock_shared_until(timeout))
    }
    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        trying(&self.record, false, self.inner.try_lock_exclusive_for(timeout))
    }
    fn try_lock_exclusive_until(&self, timeout: R::Instant) -> bool {
        trying(&self.record, false, self.inner.try_lock_exclusive_until(timeout))
    }
}
