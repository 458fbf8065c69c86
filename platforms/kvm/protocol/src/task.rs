//! What a guest is to do.

use holdfast_locks::LockKind;
use holdfast_workloads::{Boot, Micro};
use serde::{Deserialize, Serialize};

/// All that an image is told when it boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// CPUs; their numbers are their APIC IDs.
    pub cpus: u32,
    /// First byte after the image that is free for the heap.
    pub heap: u64,
    /// One past the last byte of memory.
    pub memory: u64,
    /// The clock.
    pub clock: Clock,
    /// The seed of all random streams.
    pub seed: u64,
    /// This guest's number among those of its run: its random streams are its own.
    pub guest: u32,
    /// What to do.
    pub task: Task,
}

/// What a guest reads the time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The time-stamp counter, which counts this many kHz.
    Tsc {
        /// Frequency.
        khz: u32,
    },
    /// KVM's clock, for hosts whose counter stops or changes its pace.
    Kvm,
}

/// What a guest is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Nothing but one lock, on bare CPUs.
    Contention(Contention),
    /// Busy loops on bare CPUs, for ever.
    Hog,
    /// The guest kernel with a workload.
    Kernel(Boot),
    /// A small benchmark on bare CPUs.
    Micro {
        /// Which.
        micro: Micro,
        /// How many samples.
        samples: u32,
    },
    /// Something wrong, for tests of what the VMM makes of it.
    Fault(Fault),
}

/// Every CPU takes one lock, holds it, releases it, thinks, and again: contention without a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contention {
    /// The lock asked for; a paravirtual one is replaced as guest kernels do where the host does not support it.
    #[serde(with = "holdfast_workloads::lock_name")]
    pub lock: LockKind,
    /// How long each acquisition holds the lock, nanoseconds of undisturbed time.
    pub hold_ns: u64,
    /// How long a CPU does something else between two, nanoseconds of undisturbed time.
    pub think_ns: u64,
    /// How long to measure, nanoseconds.
    pub duration_ns: u64,
    /// Iterations that a paravirtual waiter spins before it halts.
    pub spin_threshold: u32,
    /// `nopvspin`.
    pub nopvspin: bool,
    /// Whether each CPU times each of its waits, which costs two readings of the clock per acquisition.
    pub timed: bool,
}

impl Default for Contention {
    /// A PV ticket lock, held for as short as can be, for a second.
    fn default() -> Self {
        Contention {
            lock: LockKind::PvTicket,
            hold_ns: 0,
            think_ns: 0,
            duration_ns: 1_000_000_000,
            spin_threshold: 1 << 15,
            nopvspin: false,
            timed: false,
        }
    }
}

/// What a guest can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Its code panics.
    Panic,
    /// It uses an address that is not mapped.
    PageFault,
    /// It takes an exception without a table to handle it: a triple fault.
    TripleFault,
    /// It spins for ever with interrupts masked.
    Hang,
    /// It halts for ever with interrupts masked.
    Halt,
    /// It writes nonsense into its ring.
    Ring,
    /// It uses a port that nobody listens at.
    Port,
}
