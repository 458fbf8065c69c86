//! The locks of threads, each with its record.

#![expect(unsafe_code, reason = "implements traits on whose exclusion memory safety rests")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_threads::{RawCondvar, RawHybrid};
use lock_api::{GuardNoSend, RawMutex, RawMutexTimed, RawRwLock, RawRwLockDowngrade, RawRwLockTimed};

use super::order;
use super::record::Record;
use super::sealed::Recorded;
use super::stack::Stack;
use super::violation::{Access, Step, Violation, ViolationKind};

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
fn waiting(record: &Record, access: Access, lock: impl FnOnce()) {
    let stack = Stack::here();
    order::before(record, access, &stack);
    lock();
    order::after(record, access, stack);
}

/// Records a lock that was taken without waiting for it forever.
fn trying(record: &Record, access: Access, taken: bool) -> bool {
    if taken {
        order::after(record, access, Stack::here());
    }
    taken
}

impl CheckedMutex {
    /// Waits for `condvar` without the lock, which it takes again whatever else the thread holds.
    ///
    /// # Safety
    /// As for [`RawCondvar::wait`].
    pub(crate) unsafe fn wait(&self, condvar: &CheckedCondvar, deadline: Option<Instant>) -> bool {
        let again = Stack::here();
        let waits = condvar.enter(&self.record, &again);
        // After the wait the thread holds the lock for the same reason as before.
        let stack = order::release(&self.record).unwrap_or_else(|| again.clone());
        order::before(&self.record, Access::Wait, &again);
        // SAFETY: the caller's.
        let notified = unsafe { condvar.inner.wait(&self.inner, deadline) };
        order::after(&self.record, Access::Lock, stack);
        drop(waits);
        notified
    }
}

/// The condition variable with the feature `check`.
#[derive(Debug, Default)]
pub struct CheckedCondvar {
    inner: RawCondvar,
    waits: Mutex<Waits>,
}

/// The threads that wait for a condition variable.
#[derive(Debug, Default)]
struct Waits {
    count: u32,
    /// The number of the first one's mutex, and where it waits.
    first: Option<(u32, Stack)>,
    reported: bool,
}

/// A wait, which ends when this is dropped.
struct Waiting<'a>(&'a CheckedCondvar);

impl CheckedCondvar {
    pub(crate) const fn new() -> Self {
        CheckedCondvar {
            inner: RawCondvar::new(),
            waits: Mutex::new(Waits {
                count: 0,
                first: None,
                reported: false,
            }),
        }
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a wait with the mutex of `record`, which must be that of all others who wait.
    fn enter(&self, record: &Record, stack: &Stack) -> Waiting<'_> {
        let id = record.id();
        let mut waits = self.waits();
        waits.count += 1;
        let other = match waits.first.clone() {
            Some((first, at)) if waits.count > 1 => (first != id && !waits.reported).then_some((first, at)),
            _ => {
                waits.first = Some((id, stack.clone()));
                None
            }
        };
        waits.reported |= other.is_some();
        drop(waits);
        if let Some((first, held_at)) = other {
            order::found(&Violation {
                kind: ViolationKind::TwoMutexes,
                steps: vec![Step {
                    held: order::name_of(first),
                    held_as: Access::Wait,
                    held_at,
                    taken: order::name_of(id),
                    taken_as: Access::Wait,
                    taken_at: stack.clone(),
                }],
            });
        }
        Waiting(self)
    }

    pub(crate) fn notify_one(&self) -> bool {
        self.inner.notify_one()
    }

    pub(crate) fn notify_all(&self) -> u32 {
        self.inner.notify_all()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits().count -= 1;
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
        waiting(&self.record, Access::Lock, || self.inner.lock());
    }
    fn try_lock(&self) -> bool {
        trying(&self.record, Access::Lock, self.inner.try_lock())
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
        trying(&self.record, Access::Lock, self.inner.try_lock_for(timeout))
    }
    fn try_lock_until(&self, timeout: Instant) -> bool {
        trying(&self.record, Access::Lock, self.inner.try_lock_until(timeout))
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
        waiting(&self.record, Access::Read, || self.inner.lock_shared());
    }
    fn try_lock_shared(&self) -> bool {
        trying(&self.record, Access::Read, self.inner.try_lock_shared())
    }
    unsafe fn unlock_shared(&self) {
        order::release(&self.record);
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock_shared() };
    }
    fn lock_exclusive(&self) {
        waiting(&self.record, Access::Write, || self.inner.lock_exclusive());
    }
    fn try_lock_exclusive(&self) -> bool {
        trying(&self.record, Access::Write, self.inner.try_lock_exclusive())
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
        trying(&self.record, Access::Read, self.inner.try_lock_shared_for(timeout))
    }
    fn try_lock_shared_until(&self, timeout: R::Instant) -> bool {
        trying(&self.record, Access::Read, self.inner.try_lock_shared_until(timeout))
    }
    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        trying(&self.record, Access::Write, self.inner.try_lock_exclusive_for(timeout))
    }
    fn try_lock_exclusive_until(&self, timeout: R::Instant) -> bool {
        trying(
            &self.record,
            Access::Write,
            self.inner.try_lock_exclusive_until(timeout),
        )
    }
}
