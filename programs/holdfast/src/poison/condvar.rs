//! A condition variable for guards with poisoning.

use std::time::Duration;

use super::{LockResult, MutexGuard, PoisonError};
use crate::WaitTimeoutResult;

/// A [`holdfast::Condvar`](crate::Condvar) for the guards of this module. Takes the place of [`std::sync::Condvar`].
///
/// Each wait returns the guard. It returns an error, which has the guard, if the mutex is poisoned.
#[derive(Debug, Default)]
pub struct Condvar(crate::Condvar);

impl Condvar {
    /// Makes a condition variable for which no thread waits. Usable in a `static`.
    pub const fn new() -> Self {
        Condvar(crate::Condvar::new())
    }

    /// Unlocks the guard's mutex, waits for a notification, and locks the mutex again.
    ///
    /// # Errors
    /// If the mutex is poisoned.
    pub fn wait<'a, T: ?Sized>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard.inner());
        guard.check()
    }

    /// Waits until `condition` no longer holds.
    ///
    /// # Errors
    /// If the mutex is poisoned.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// [`wait`](Condvar::wait) for at most `timeout`.
    ///
    /// # Errors
    /// If the mutex is poisoned.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let result = self.0.wait_for(guard.inner(), timeout);
        with_result(guard.check(), result)
    }

    /// Waits until `condition` no longer holds, for at most `timeout`.
    ///
    /// # Errors
    /// If the mutex is poisoned.
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let result = self.0.wait_while_for(guard.inner(), condition, timeout);
        with_result(guard.check(), result)
    }

    /// Notifies the thread that has waited for longest.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Notifies all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

fn with_result<G>(guard: LockResult<G>, result: WaitTimeoutResult) -> LockResult<(G, WaitTimeoutResult)> {
    match guard {
        Ok(guard) => Ok((guard, result)),
        Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
    }
}
