//! A reader-writer lock of the checker.

use std::ops::{Deref, DerefMut};

use super::{checker, tried, unpoisoned};

/// Data that several threads may read, or one may write, at a time.
#[derive(Debug, Default)]
pub struct RwLock<T>(checker::sync::RwLock<T>);

/// Access to the data of a [`RwLock`] for reading.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T>(checker::sync::RwLockReadGuard<'a, T>);

/// Access to the data of a [`RwLock`] for writing.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T>(checker::sync::RwLockWriteGuard<'a, T>);

/// The checker has no bias: this is its [`RwLock`].
pub type BiasedRwLock<T> = RwLock<T>;

/// Access to the data of a [`BiasedRwLock`] for reading.
pub type BiasedRwLockReadGuard<'a, T> = RwLockReadGuard<'a, T>;

/// Access to the data of a [`BiasedRwLock`] for writing.
pub type BiasedRwLockWriteGuard<'a, T> = RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// Makes an unlocked lock.
    pub fn new(value: T) -> Self {
        RwLock(checker::sync::RwLock::new(value))
    }

    /// Waits until the caller may read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(unpoisoned(self.0.read()))
    }

    /// Waits until the caller may write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(unpoisoned(self.0.write()))
    }

    /// Takes the lock for reading if no thread writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        tried(self.0.try_read()).map(RwLockReadGuard)
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        tried(self.0.try_write()).map(RwLockWriteGuard)
    }

    /// Returns the data. An exclusive borrow needs no locking.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }

    /// Consumes the lock and returns the data.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
