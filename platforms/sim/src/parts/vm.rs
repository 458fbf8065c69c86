//! A guest: its kernel, its settings, the memory that it shares with its host, and what it has reported.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use holdfast_guest::GuestImage;
use holdfast_host::VcpuId;
use holdfast_locks::{LockStats, NodeTable, WaitTable};
use holdfast_machine::{Picos, Time};

use crate::core::latencies::Latencies;
use crate::memory::dirty::Pages;
use crate::memory::records::SharedMemory;
use crate::memory::tlb::Spaces;
use crate::memory::word::{SimAddress, SimWord};

/// Settings of a guest's kernel and firmware.
#[derive(Debug)]
pub struct Settings {
    /// CPU 0 of the kernel starts the others by SIPI.
    pub waits_for_sipi: bool,
    /// Seed of all guests' random streams.
    pub seed: u64,
    /// The guest's number for its random streams. It is the same inside of another guest.
    pub number: u32,
    /// Iterations before a paravirtual waiter halts.
    pub spin_threshold: u32,
    /// A waiter in a queue halts behind a preempted one.
    pub wait_early_preempted: bool,
    /// Time that the VMM's device model works on an access.
    pub device: Picos,
    /// HLT, MWAIT and PAUSE do not exit.
    pub cpu_pm: bool,
    /// The firmware's proximity domain of each vCPU; empty if the firmware has no such table.
    pub domains: Box<[u32]>,
}

/// The tables of a guest's locks.
#[derive(Debug)]
pub struct LockTables {
    /// Queue nodes.
    pub nodes: NodeTable<SimWord>,
    /// Halted waiters.
    pub waiting: WaitTable<SimWord, SimAddress>,
    /// Statistics of the locks.
    pub stats: LockStats,
}

/// What a guest has reported of its workload.
#[derive(Debug, Default)]
pub struct Progress {
    /// Begin of the measured interval.
    pub begun: Option<Time>,
    /// End of the measured interval.
    pub done: Option<Time>,
    /// Operations that the workload completed.
    pub operations: Option<u64>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// How long the operations took that were completed in the measured interval.
    pub latencies: Latencies,
    /// How long its woken vCPUs waited for a pCPU, if it repeats a recorded guest.
    pub wakes: Option<Latencies>,
}

impl Progress {
    /// Whether the measured interval has begun and not ended.
    pub fn is_measuring(&self) -> bool {
        self.begun.is_some() && self.done.is_none()
    }
}

/// What the watchdog last saw of a guest.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The guest's last progress then.
    pub progress: Time,
    /// When the watchdog saw it first.
    pub seen_at: Time,
    /// Picoseconds that each vCPU had been without a pCPU until then; empty for power-on.
    pub off: Vec<u64>,
}

/// What flows of a guest hold references to, also while other flows use the engine. So it is not part of the engine's
/// memory, and all that changes in it is in cells.
#[derive(Debug)]
pub struct FixedPart {
    /// Settings of its kernel and firmware.
    pub settings: Settings,
    /// The memory that it shares with its host.
    pub memory: SharedMemory,
    /// The NUMA node that its kernel has announced for each vCPU.
    pub numa_nodes: Box<[Cell<u32>]>,
    /// The tables of its locks.
    pub locks: LockTables,
}

/// A guest.
pub struct Vm {
    /// Its name.
    pub name: String,
    /// The number of its first vCPU among all vCPUs.
    pub first_vcpu: VcpuId,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// The run ends when all measured guests are done.
    pub measured: bool,
    /// Its kernel; set right after construction.
    pub image: Option<Box<dyn GuestImage>>,
    /// What its flows hold references to. It is never replaced.
    pub fixed: Rc<FixedPart>,
    /// Its pages.
    pub pages: Pages,
    /// Its address spaces.
    pub spaces: Spaces,
    /// What it has reported of its workload.
    pub report: Progress,
    /// What the watchdog last saw of it.
    pub watched: Watched,
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm")
            .field("name", &self.name)
            .field("vcpus", &self.vcpus)
            .finish_non_exhaustive()
    }
}

impl Vm {
    /// The number among all vCPUs of the guest's vCPU `number`.
    #[inline(always)]
    pub fn vcpu(&self, number: u32) -> VcpuId {
        VcpuId(self.first_vcpu.0 + number)
    }

    /// The numbers among all vCPUs of the guest's vCPUs.
    pub fn vcpu_ids(&self) -> impl Iterator<Item = VcpuId> + use<> {
        (self.first_vcpu.0..self.first_vcpu.0 + self.vcpus).map(VcpuId)
    }

    /// Whether the run no longer waits for the guest.
    pub fn is_finished(&self) -> bool {
        !self.measured || self.report.done.is_some()
    }
}
