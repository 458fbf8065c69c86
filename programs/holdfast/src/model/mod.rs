//! The types for model checkers: the features `loom` and `shuttle`.
//!
//! With one of the features, [`Mutex`], [`RwLock`], [`Condvar`], [`Once`] and [`OnceLock`] are those of the checker
//! behind the methods of this crate. So a check of a program that uses them explores what its threads do between locks,
//! and finds races, deadlocks and lost wakeups of the *program*. With both features the checker is loom.
//!
//! The locks are the checker's, not ours. A contended lock of ours is dozens of memory operations, each of which the
//! checker would let every other thread interrupt: a model of two threads and one mutex takes loom seconds to minutes,
//! and a program's model has more. Our locks have model checks of their own, which need not be repeated.
//!
//! What differs from the types without the features:
//!
//! - They work only inside a model (`loom::model`, `shuttle::check_random`). Loom's cannot be made in a constant. So
//!   there is no [`LazyLock`](std::sync::LazyLock), and no lock in a `static`.
//! - The checkers have no time. A wait with a time limit gives way to other threads, then ends as if the time were
//!   over.
//! - Data must be `Sized`. There are no mapped or owned guards.
//! - The module [`poison`] has the checker's own types, whose signatures are those of `std::sync`.

mod condvar;
mod mutex;
mod once;
mod rwlock;

#[cfg(feature = "loom")]
use ::loom as checker;
#[cfg(not(feature = "loom"))]
use ::shuttle as checker;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use rwlock::{
    BiasedRwLock, BiasedRwLockReadGuard, BiasedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Locks with poisoning: the checker's own.
pub mod poison {
    pub use super::checker::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
}

/// Returns the guard, whether a thread has panicked with the lock held or not.
fn unpoisoned<G>(result: std::sync::LockResult<G>) -> G {
    result.unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the guard if the lock was free.
fn tried<G>(result: std::sync::TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
