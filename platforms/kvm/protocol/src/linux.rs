//! What the first process of a stock Linux guest is to do.

use serde::{Deserialize, Serialize};

/// Threads of one process that call one path of the guest's kernel, whose spinlock they share, as often as they can.
///
/// The process finds this, encoded, in the file [`Hammer::FILE`] of its initial file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hammer {
    /// The guest's CPUs: that many must have come up.
    pub cpus: u32,
    /// Threads, up to [`Hammer::THREADS_MAX`].
    pub threads: u32,
    /// What they call.
    pub path: KernelPath,
    /// The measured interval ends with this many calls of all threads together,
    pub calls: u64,
    /// or after this long, nanoseconds, whatever comes first.
    pub duration_ns: u64,
    /// How long a thread computes between two calls, in cycles of the time-stamp counter.
    pub think_cycles: u64,
}

impl Hammer {
    /// Where the process finds its orders.
    pub const FILE: &str = "orders";
    /// The most threads.
    pub const THREADS_MAX: u32 = 512;
}

/// A path of the kernel on which threads of a process meet at a spinlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelPath {
    /// `dup` and `close` of a descriptor: `files_struct.file_lock`, twice.
    Dup,
    /// `futex(FUTEX_WAIT)` with a value that the word does not have: the lock of its hash bucket.
    Futex,
}
