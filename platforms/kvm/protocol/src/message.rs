//! The messages by which a guest reports.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// A message. Times are in nanoseconds of the guest's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A line of the guest's log.
    Log(String),
    /// A CPU executes its first instruction of the workload.
    Started {
        /// Number of the CPU.
        cpu: u32,
        /// Time of the event.
        now_ns: u64,
    },
    /// The measured interval begins.
    Begin {
        /// Time of the event.
        now_ns: u64,
    },
    /// The workload is complete.
    Done {
        /// Time of the event.
        now_ns: u64,
        /// Number of completed operations, for workloads that measure throughput.
        operations: Option<u64>,
    },
    /// The name and the value of a counter.
    Counter(String, u64),
    /// The counts of one CPU in a [`Contention`](crate::Contention).
    Contended(Contended),
    /// The guest cannot continue.
    Panic {
        /// Number of the CPU.
        cpu: u32,
        /// Reason of the panic.
        message: String,
        /// State that an exception interrupted, or `None` if the guest's code panicked.
        crash: Option<Crash>,
    },
    /// The name and the value of a counter when the VMM asked for it ([`SNAPSHOT_VECTOR`]).
    ///
    /// [`SNAPSHOT_VECTOR`]: crate::layout::SNAPSHOT_VECTOR
    Before(String, u64),
    /// All counters of such a snapshot are reported.
    Snapshot {
        /// Time of the event.
        now_ns: u64,
    },
}

/// The counts of one CPU in a [`Contention`](crate::Contention).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contended {
    /// Number of the CPU.
    pub cpu: u32,
    /// Number of acquisitions within the interval.
    pub acquisitions: u64,
    /// Number of acquisitions that had to wait.
    pub waits: u64,
    /// Number of kick hypercalls since boot.
    pub kicks: u64,
    /// Number of halts since boot.
    pub halts: u64,
    /// Longest time from the call of `lock` to its return, in nanoseconds. Includes preemption of the waiter itself.
    pub longest_wait_ns: u64,
}

/// The state that an exception interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// Vector of the exception.
    pub vector: u8,
    /// Error code, or 0 if the exception has none.
    pub error: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Frame pointer.
    pub rbp: u64,
    /// Flags register.
    pub rflags: u64,
    /// Address of a page fault.
    pub cr2: u64,
}
