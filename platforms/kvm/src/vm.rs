//! The description of a virtual machine.

use std::time::Duration;

use holdfast_protocol::{Task, layout};

use crate::linux::Linux;

/// A feature that the guest finds in CPUID if the host supports it and the VM does not withhold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// `KVM_FEATURE_STEAL_TIME`: the steal-time record with the preempted flag.
    StealTime,
    /// `KVM_FEATURE_PV_EOI`: end of interrupt by a bit in memory.
    PvEoi,
    /// `KVM_FEATURE_PV_UNHALT`: halting in lock slow paths, and the kick. Without it guests use test-and-set locks.
    PvUnhalt,
    /// `KVM_FEATURE_PV_TLB_FLUSH`: deferred TLB flushes of preempted vCPUs.
    PvTlbFlush,
    /// `KVM_FEATURE_PV_SEND_IPI`: IPIs by hypercall.
    PvSendIpi,
    /// `KVM_FEATURE_POLL_CONTROL`: the guest may switch off the host's halt polling.
    PollControl,
    /// `KVM_FEATURE_PV_SCHED_YIELD`: directed yield by hypercall.
    PvSchedYield,
    /// The LAPIC's x2APIC mode. Without it guests use the memory-mapped registers.
    X2apic,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 8] = [
        Feature::StealTime,
        Feature::PvEoi,
        Feature::PvUnhalt,
        Feature::PvTlbFlush,
        Feature::PvSendIpi,
        Feature::PollControl,
        Feature::PvSchedYield,
        Feature::X2apic,
    ];
}

/// A virtual machine: its vCPUs, its memory, its features and its payload.
#[derive(Clone, Debug)]
pub struct Vm {
    pub(crate) name: String,
    pub(crate) vcpus: u32,
    pub(crate) pins: Vec<Vec<u32>>,
    pub(crate) memory_bytes: u64,
    pub(crate) withheld: Vec<Feature>,
    pub(crate) realtime: bool,
    pub(crate) measured: bool,
    pub(crate) seed: u64,
    pub(crate) halt_poll_ns: Option<u32>,
    pub(crate) nice: i8,
    pub(crate) cpu_pm: bool,
    pub(crate) domains: Vec<u32>,
    pub(crate) from: Duration,
    pub(crate) until: Option<Duration>,
    pub(crate) payload: Payload,
}

/// The software that a VM runs.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The guest image with this task.
    Image(Task),
    /// A stock Linux kernel.
    Linux(Linux),
}

impl Vm {
    /// Returns a measured VM with `vcpus` unpinned vCPUs, 512 MiB of memory and all features that the host supports.
    /// The host allocates memory when the guest first uses it.
    pub fn new(name: impl Into<String>, vcpus: u32, task: Task) -> Vm {
        Vm::with(name.into(), vcpus, Payload::Image(task))
    }

    /// Returns a VM as [`Vm::new`] does, with a stock Linux kernel.
    pub fn linux(name: impl Into<String>, vcpus: u32, linux: Linux) -> Vm {
        Vm::with(name.into(), vcpus, Payload::Linux(linux))
    }

    fn with(name: String, vcpus: u32, payload: Payload) -> Vm {
        Vm {
            name,
            vcpus,
            pins: Vec::new(),
            memory_bytes: 512 << 20,
            withheld: Vec::new(),
            realtime: false,
            measured: true,
            seed: 1,
            halt_poll_ns: None,
            nice: 0,
            cpu_pm: false,
            domains: Vec::new(),
            from: Duration::ZERO,
            until: None,
            payload,
        }
    }

    /// Pins each vCPU to a list of pCPUs. vCPUs without a list, and those with an empty one, are not pinned.
    #[must_use]
    pub fn pinned(mut self, pins: Vec<Vec<u32>>) -> Vm {
        self.pins = pins;
        self
    }

    /// Sets the size of the memory in bytes: [`layout::MEMORY_MIN`] to [`layout::MEMORY_END`], in whole pages.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Vm {
        self.memory_bytes = bytes;
        self
    }

    /// Withholds `feature` from the guest.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Vm {
        self.withheld.push(feature);
        self
    }

    /// Tells the guest that its vCPUs are never preempted for an unbounded time (`KVM_HINTS_REALTIME`).
    #[must_use]
    pub fn realtime(mut self) -> Vm {
        self.realtime = true;
        self
    }

    /// Makes this a background VM: it is not measured, and runs until the measured ones are done.
    #[must_use]
    pub fn background(mut self) -> Vm {
        self.measured = false;
        self
    }

    /// Sets the seed of the guest's random streams. Default: 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Vm {
        self.seed = seed;
        self
    }

    /// Limits the host's polling when a vCPU of this VM halts, in nanoseconds (`KVM_CAP_HALT_POLL`). Default: the
    /// host's limit.
    #[must_use]
    pub fn halt_poll_ns(mut self, ns: u32) -> Vm {
        self.halt_poll_ns = Some(ns);
        self
    }

    /// Sets the nice level of the threads of the vCPUs, -20 to 19. Default: 0, which leaves them as this process is.
    ///
    /// A level below this process's own needs `CAP_SYS_NICE`.
    #[must_use]
    pub fn nice(mut self, level: i8) -> Vm {
        self.nice = level;
        self
    }

    /// Passes HLT and PAUSE through to the CPU, and MWAIT where the host can (QEMU's `cpu-pm=on`,
    /// `KVM_CAP_X86_DISABLE_EXITS`). A guest that halts then keeps its CPU, so it is not offered
    /// [`Feature::PvUnhalt`].
    #[must_use]
    pub fn cpu_pm(mut self) -> Vm {
        self.cpu_pm = true;
        self
    }

    /// Sets the proximity domain of each vCPU, which the image's kernel reads as from the firmware's table. Default: no
    /// table, so that all vCPUs are on one NUMA node. The memory stays where the host puts it.
    #[must_use]
    pub fn proximity_domains(mut self, domains: Vec<u32>) -> Vm {
        self.domains = domains;
        self
    }

    /// Sets the time since the start of the run at which the vCPUs start. The VM exists before. Default: 0.
    #[must_use]
    pub fn from(mut self, from: Duration) -> Vm {
        self.from = from;
        self
    }

    /// Sets the time since the start of the run at which the VM is destroyed, which must be a background VM. Its memory
    /// stays allocated until the run ends. Default: with the run.
    #[must_use]
    pub fn until(mut self, until: Duration) -> Vm {
        self.until = Some(until);
        self
    }

    /// Returns the VM's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of vCPUs.
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }
}

const _: () = assert!(layout::MEMORY_MIN < layout::MEMORY_END);
