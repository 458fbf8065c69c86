//! A mutex of the checker.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::{checker, tried, unpoisoned};

/// Data that one thread at a time may access.
#[derive(Debug, Default)]
pub struct Mutex<T>(checker::sync::Mutex<T>);

/// Access to the data of a [`Mutex`], which is released when the guard is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// The checker's guard, except while the thread waits for a condition variable.
    inner: Option<checker::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    pub fn new(value: T) -> Self {
        Mutex(checker::sync::Mutex::new(value))
    }

    fn guard<'a>(&'a self, inner: checker::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            lock: self,
            inner: Some(inner),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(unpoisoned(self.0.lock()))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        tried(self.0.try_lock()).map(|inner| self.guard(inner))
    }

    /// Gives way to other threads, then takes the lock if it is free.
    pub fn try_lock_for(&self, _timeout: Duration) -> Option<MutexGuard<'_, T>> {
        checker::thread::yield_now();
        self.try_lock()
    }

    /// As [`try_lock_for`](Mutex::try_lock_for).
    pub fn try_lock_until(&self, _deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.try_lock_for(Duration::ZERO)
    }

    /// Returns whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Returns the data. An exclusive borrow needs no locking.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }

    /// Consumes the mutex and returns the data.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Unlocks, calls `wait`, and locks again unless `wait` has returned the checker's guard.
    pub(super) fn without(
        &mut self,
        wait: impl FnOnce(checker::sync::MutexGuard<'a, T>) -> Option<checker::sync::MutexGuard<'a, T>>,
    ) {
        let inner = self.inner.take().and_then(wait);
        self.inner = Some(inner.unwrap_or_else(|| unpoisoned(self.lock.0.lock())));
    }
}

const HELD: &str = "a guard holds its lock";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}
