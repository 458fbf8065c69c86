//! Locks with poisoning, and with the signatures of [`std::sync`].
//!
//! If a thread panics while it holds a lock, its data may be half changed. So the lock is *poisoned*: every later call
//! returns an error, which still has the guard.
//!
//! ```
//! use holdfast::poison::Mutex;
//!
//! let count = Mutex::new(0);
//! *count.lock().unwrap() += 1;
//! assert_eq!(count.into_inner().unwrap(), 1);
//! ```
//!
//! For the other types of `std::sync` the module has those of the crate's root, which differ in one point: a panic
//! while their value is made leaves them as they were, so the next call tries again. `Once` has no `call_once_force`,
//! since there is no poison to force. `Barrier` is the standard library's.

mod common;
mod condvar;
mod flag;
mod mutex;
mod rwlock;

pub use std::sync::{Barrier, BarrierWaitResult, LockResult, PoisonError, TryLockError, TryLockResult};

pub use crate::{LazyLock, Once, OnceLock, WaitTimeoutResult};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
