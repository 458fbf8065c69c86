//! Locks whose waiters sleep: the queue of their spinners, threads as CPUs, and condition variables.

pub(crate) mod condvar;
pub(crate) mod osq;
pub(crate) mod requeue;
pub mod thread;

pub use condvar::{Condvar, CondvarSlot, CondvarTable};
pub use osq::{Osq, OsqTable};
pub use requeue::{Futexes, RequeueCondvar};
