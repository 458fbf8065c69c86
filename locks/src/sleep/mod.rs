//! Locks whose waiters sleep: the queue of their spinners, threads as CPUs, and condition variables.

pub(crate) mod osq;
pub(crate) mod requeue;
pub mod thread;

pub use osq::{Osq, OsqTable};
pub use requeue::{Futexes, RequeueCondvar};
