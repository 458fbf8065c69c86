//! The orders of a stock Linux guest's first process.

use holdfast_workloads::Hackbench;
use serde::{Deserialize, Serialize};

/// What a stock Linux guest's first process does.
///
/// The process reads the encoding of this from the file [`Process::FILE`] of its initial file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Number of the guest's CPUs. The process fails if another number has come up.
    pub cpus: u32,
    /// What it runs.
    pub program: Program,
}

impl Process {
    /// Name of the file with the orders.
    pub const FILE: &str = "orders";
    /// Largest number of processes that it starts. A kernel with 512 MiB allows about 3900 tasks.
    pub const PROCESSES_MAX: u32 = 2000;
    /// Largest number of channels that it has open. A process may have 1024 descriptors, and a channel has two.
    pub const CHANNELS_MAX: u32 = 500;
}

/// A program of a stock Linux guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Threads that call one path of the kernel.
    Hammer(Hammer),
    /// Processes that exchange messages. The measured interval ends with the last message.
    Messages(Hackbench),
}

/// Threads of one process that call one path of the guest's kernel as often as they can, and so contend for its
/// spinlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hammer {
    /// Number of threads, 1 to [`Hammer::THREADS_MAX`].
    pub threads: u32,
    /// The path that the threads call.
    pub path: KernelPath,
    /// Number of calls, over all threads, after which the measured interval ends, unless [`Hammer::duration_ns`] ends
    /// it.
    pub calls: u64,
    /// Longest duration of the measured interval in nanoseconds.
    pub duration_ns: u64,
    /// Time that a thread computes between two calls, in cycles of the time-stamp counter.
    pub think_cycles: u64,
}

impl Hammer {
    /// Largest number of threads.
    pub const THREADS_MAX: u32 = 512;
}

/// A path of the kernel that takes a spinlock shared by the threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelPath {
    /// `dup` and `close` of a descriptor. Each takes `files_struct.file_lock`.
    Dup,
    /// `futex(FUTEX_WAIT)` with a value that the word does not have. Takes the lock of the word's hash bucket.
    Futex,
}
