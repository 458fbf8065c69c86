//! The flag of a poisoned lock.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use super::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Whether a thread has panicked while it held the lock. The lock orders all accesses that matter.
#[derive(Debug, Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) const fn new() -> Self {
        Flag(AtomicBool::new(false))
    }

    pub(super) fn is_set(&self) -> bool {
        // ORDERING: Relaxed; a holder's store is ordered before the next holder's load by the lock.
        self.0.load(Relaxed)
    }

    pub(super) fn clear(&self) {
        // ORDERING: Relaxed; as in `is_set`.
        self.0.store(false, Relaxed);
    }

    /// Returns `value` as an error if the flag is set.
    pub(super) fn check<T>(&self, value: T) -> LockResult<T> {
        if self.is_set() {
            Err(PoisonError::new(value))
        } else {
            Ok(value)
        }
    }

    /// Returns `value` as an error if there is none, or if the flag is set.
    pub(super) fn check_tried<T>(&self, value: Option<T>) -> TryLockResult<T> {
        let value = value.ok_or(TryLockError::WouldBlock)?;
        Ok(self.check(value)?)
    }
}

/// Sets the flag of a lock when dropped, if the thread began to panic after this value was made.
#[derive(Debug)]
pub(super) struct OnPanic<'a> {
    flag: &'a Flag,
    panicked_before: bool,
}

impl<'a> OnPanic<'a> {
    pub(super) fn new(flag: &'a Flag) -> Self {
        OnPanic {
            flag,
            panicked_before: thread::panicking(),
        }
    }

    pub(super) fn flag(&self) -> &'a Flag {
        self.flag
    }
}

impl Drop for OnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.panicked_before && thread::panicking() {
            // ORDERING: Relaxed; as in `is_set`.
            self.flag.0.store(true, Relaxed);
        }
    }
}
