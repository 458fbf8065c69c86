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

mod common;
mod condvar;
mod flag;
mod mutex;
mod rwlock;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
