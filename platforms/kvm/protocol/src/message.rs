//! What a guest reports.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// One report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// For people.
    Log(String),
    /// A CPU executes its first instruction of the workload; nanoseconds of the guest's clock.
    Started {
        /// Which.
        cpu: u32,
        /// When.
        now_ns: u64,
    },
    /// The measured interval begins.
    Begin {
        /// When.
        now_ns: u64,
    },
    /// The workload is done.
    Done {
        /// When.
        now_ns: u64,
        /// Operations completed, for workloads that measure throughput.
        operations: Option<u64>,
    },
    /// A named counter of the guest's.
    Counter(String, u64),
    /// What one CPU did of a [`Contention`](crate::Contention).
    Contended(Contended),
    /// The guest cannot go on.
    Panic {
        /// The CPU.
        cpu: u32,
        /// Why.
        message: String,
        /// What an exception interrupted; `None`: the code itself gave up.
        crash: Option<Crash>,
    },
}

/// What one CPU did of a [`Contention`](crate::Contention).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contended {
    /// The CPU.
    pub cpu: u32,
    /// Times it took the lock within the interval.
    pub acquisitions: u64,
    /// Of these, how many had to wait.
    pub waits: u64,
    /// Hypercalls that kicked another CPU, since boot.
    pub kicks: u64,
    /// Halts, since boot.
    pub halts: u64,
    /// The longest time from wanting the lock to having it, nanoseconds; the CPU's own loss of its pCPU included.
    pub longest_wait_ns: u64,
}

/// Registers of what an exception interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// Vector.
    pub vector: u8,
    /// Error code, 0 where there is none.
    pub error: u64,
    /// Instruction.
    pub rip: u64,
    /// Stack.
    pub rsp: u64,
    /// Frame.
    pub rbp: u64,
    /// Flags.
    pub rflags: u64,
    /// Address of a page fault.
    pub cr2: u64,
}
