//! What a virtual machine is to be.

use holdfast_protocol::{Task, layout};

use crate::linux::Linux;

/// A paravirtual feature that the guest finds in CPUID, if the host has it and it is not withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// `KVM_FEATURE_STEAL_TIME`: the steal-time record, and with it the preempted flag.
    StealTime,
    /// `KVM_FEATURE_PV_EOI`.
    PvEoi,
    /// `KVM_FEATURE_PV_UNHALT`: halting for a lock, and the kick. Without, guests use test-and-set locks.
    PvUnhalt,
    /// `KVM_FEATURE_PV_TLB_FLUSH`.
    PvTlbFlush,
    /// `KVM_FEATURE_PV_SEND_IPI`.
    PvSendIpi,
    /// `KVM_FEATURE_POLL_CONTROL`.
    PollControl,
    /// `KVM_FEATURE_PV_SCHED_YIELD`: directed yield by hypercall.
    PvSchedYield,
    /// The x2APIC. Without, guests use the memory-mapped registers.
    X2apic,
}

impl Feature {
    /// Every feature.
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

/// A virtual machine: its vCPUs, what it is offered, what it runs.
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
    pub(crate) payload: Payload,
}

/// What a VM runs.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The image, with this task.
    Image(Task),
    /// A stock Linux.
    Linux(Linux),
}

impl Vm {
    /// A measured VM with `vcpus` vCPUs that may run everywhere, 512 MiB of memory (which costs only what is used), and all
    /// features that the host offers.
    pub fn new(name: impl Into<String>, vcpus: u32, task: Task) -> Vm {
        Vm::with(name.into(), vcpus, Payload::Image(task))
    }

    /// As [`Vm::new`], with a stock Linux kernel.
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
            payload,
        }
    }

    /// For each vCPU the pCPUs that it may run on; vCPUs beyond the list, and those with an empty one, run everywhere.
    #[must_use]
    pub fn pinned(mut self, pins: Vec<Vec<u32>>) -> Vm {
        self.pins = pins;
        self
    }

    /// Bytes of memory, [`layout::MEMORY_MIN`] to [`layout::MEMORY_END`].
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Vm {
        self.memory_bytes = bytes;
        self
    }

    /// Withholds `feature`.
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

    /// Runs for as long as the measured ones do; its workload need not end.
    #[must_use]
    pub fn background(mut self) -> Vm {
        self.measured = false;
        self
    }

    /// The seed of the guest's random streams. Default 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Vm {
        self.seed = seed;
        self
    }

    /// The host polls at most this long when one of its vCPUs halts, nanoseconds (`KVM_CAP_HALT_POLL`); default: the host's.
    #[must_use]
    pub fn halt_poll_ns(mut self, ns: u32) -> Vm {
        self.halt_poll_ns = Some(ns);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many vCPUs it has.
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }
}

const _: () = assert!(layout::MEMORY_MIN < layout::MEMORY_END);
