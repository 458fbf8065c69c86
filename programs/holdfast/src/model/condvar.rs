//! A condition variable of the checker.

use std::time::{Duration, Instant};

use super::{MutexGuard, checker, unpoisoned};

/// Whether the time of a wait was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait has ended because its time was up.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable: threads wait, without their mutex, until another thread has changed what the mutex protects.
#[derive(Debug)]
pub struct Condvar(checker::sync::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl Condvar {
    /// Makes a condition variable for which no thread waits.
    pub fn new() -> Self {
        Condvar(checker::sync::Condvar::new())
    }

    /// Unlocks the guard's mutex, waits for a notification, and locks the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.without(|inner| Some(unpoisoned(self.0.wait(inner))));
    }

    /// Waits until `condition` no longer holds.
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Unlocks the guard's mutex, gives way to other threads, and locks the mutex again: the time is always over.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> WaitTimeoutResult {
        guard.without(|inner| {
            drop(inner);
            checker::thread::yield_now();
            None
        });
        WaitTimeoutResult(true)
    }

    /// As [`wait_for`](Condvar::wait_for).
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, Duration::ZERO)
    }

    /// Gives way once if `condition` holds. The time is over if it then still does.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        if condition(guard) {
            self.wait_for(guard, timeout);
        }
        WaitTimeoutResult(condition(guard))
    }

    /// Notifies the thread that has waited for longest, if there is one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Notifies all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
