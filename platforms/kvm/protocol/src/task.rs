//! The orders of the guest image.

use alloc::vec::Vec;

use holdfast_locks::LockKind;
use holdfast_workloads::{Boot, Micro};
use serde::{Deserialize, Serialize};

/// The orders that an image reads when it boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Where the heap is. It comes first, since the image reads it before it can decode what follows: see [`heap_in`].
    pub heap: Heap,
    /// Number of CPUs. Their numbers, from 0, are their APIC IDs.
    pub cpus: u32,
    /// The clock that the guest reads.
    pub clock: Clock,
    /// Seed of the random streams.
    pub seed: u64,
    /// This guest's number in its run. It distinguishes the random streams of guests with the same seed.
    pub guest: u32,
    /// The proximity domain of each CPU, as in the firmware's table (ACPI SRAT). Empty if there is no table.
    pub domains: Vec<u32>,
    /// The task.
    pub task: Task,
}

/// The range of addresses that the guest's heap takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    /// Address of the first byte.
    pub begin: u64,
    /// Address after the last byte, which is the end of memory.
    pub end: u64,
}

/// Returns the heap that encoded [`Orders`] name, without an allocation: the rest of the orders has sequences, and
/// decoding these takes a heap. Returns `None` if `bytes` begin with no heap.
pub fn heap_in(bytes: &[u8]) -> Option<Heap> {
    postcard::take_from_bytes(bytes).ok().map(|(heap, _)| heap)
}

/// The clock that a guest reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The time-stamp counter.
    Tsc {
        /// Frequency of the counter in kHz.
        khz: u32,
    },
    /// KVM's clock, for hosts whose time-stamp counter stops or changes its frequency.
    Kvm,
}

/// The task of a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Contention for one lock, without a kernel.
    Contention(Contention),
    /// Busy loops on all CPUs, without a kernel and without an end.
    Hog,
    /// The guest kernel with a workload.
    Kernel(Boot),
    /// A microbenchmark without a kernel.
    Micro {
        /// The benchmark.
        micro: Micro,
        /// Number of samples.
        samples: u32,
    },
    /// A deliberate fault, for tests of the VMM.
    Fault(Fault),
}

/// Contention for one lock without a kernel: every CPU repeatedly takes the lock, holds it, releases it and computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contention {
    /// The requested lock. As guest kernels do, the image replaces a paravirtual lock that the host does not support.
    #[serde(with = "holdfast_workloads::lock_name")]
    pub lock: LockKind,
    /// Time for which each acquisition holds the lock, in nanoseconds of undisturbed execution.
    pub hold_ns: u64,
    /// Time between a release and the next acquisition, in nanoseconds of undisturbed execution.
    pub think_ns: u64,
    /// Duration of the measured interval in nanoseconds.
    pub duration_ns: u64,
    /// Number of iterations that a paravirtual waiter spins before it halts.
    pub spin_threshold: u32,
    /// Whether the kernel parameter `nopvspin` is set: no paravirtual spinlock.
    pub nopvspin: bool,
    /// Whether each CPU times its waits, at the cost of two readings of the clock for each acquisition.
    pub timed: bool,
}

impl Default for Contention {
    /// Returns contention for a PV ticket lock with empty critical sections, for one second.
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

/// A deliberate fault of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The guest's code panics.
    Panic,
    /// The guest reads an address that is not mapped.
    PageFault,
    /// The guest raises an exception without an interrupt table, which ends in a triple fault.
    TripleFault,
    /// The guest spins without end, with interrupts masked.
    Hang,
    /// The guest halts with interrupts masked.
    Halt,
    /// The guest writes an impossible length to its ring.
    Ring,
    /// The guest writes to an I/O port without a device.
    Port,
    /// All CPUs of the guest do random things that no correct guest does, and possibly come to an end.
    Hostile {
        /// Seed of the random numbers.
        seed: u64,
    },
}
