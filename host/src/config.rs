//! Parameters of the host kernel, the hypervisor, and what each guest is offered.
//!
//! Defaults are those of Linux 3.3 ([`HostConfig::linux_3_3`]). Section marks refer to the host specification;
//! "bracketed" means that the value was read on both sides of that version.

use alloc::vec::Vec;

use crate::GroupId;
use crate::interrupts::Inhibits;
use crate::interrupts::apicv::ApicvConfig;
use crate::interrupts::avic::AvicConfig;
use crate::pause::config::{PauseControls, PauseHandling};
use crate::sched::config::SchedConfig;

/// When the scheduler ticks of the pCPUs fall, relative to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TickPhase {
    /// All at the same time: Linux from 2.6.36, which removed the old skew, and the default (`skew_tick=0`) since 3.6
    /// brought it back as an option. Slices end on ticks, so co-scheduled pCPUs keep their phases: it matters.
    #[default]
    Aligned,
    /// Spread over the first half of a period, as `skew_tick=1` does it.
    HalfSkewed,
    /// Spread evenly over the whole period.
    Spread,
}

/// Parameters of the host kernel and the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Scheduler ticks per second.
    pub hz: u32,
    /// How the ticks of the pCPUs lie to each other.
    pub tick_phase: TickPhase,
    /// The host scheduler.
    pub sched: SchedConfig,
    /// Longest time for which a halted vCPU's pCPU polls before its thread sleeps; 0: never. Nanoseconds.
    pub halt_poll_ns: u64,
    /// Factor by which the polling time grows.
    pub halt_poll_grow: u64,
    /// What it grows to from 0. Nanoseconds.
    pub halt_poll_grow_start_ns: u64,
    /// Divisor by which it shrinks; 0: to nothing at once.
    pub halt_poll_shrink: u64,
    /// What is done about guests that spin.
    pub pause: PauseHandling,
    /// How the part is told to watch for them.
    pub pause_controls: PauseControls,
    /// Which of several LAPICs takes a lowest-priority interrupt: that one which the vector's number picks (KVM's
    /// `vector_hashing`, on by default since 4.5, uncertain); else the one that has taken the fewest.
    pub vector_hashing: bool,
    /// AMD's interrupt controller for guests.
    pub avic: AvicConfig,
    /// Intel's APIC virtualization.
    pub apicv: ApicvConfig,
    /// Whether the tracepoints of LAPICs are on ([`Command::AcceptIrq`](crate::Command::AcceptIrq)).
    pub traces_interrupts: bool,
    /// Frequency of the time-stamp counter, for the LAPIC timer's deadline mode.
    pub tsc_hz: u64,
    /// Shortest period of a periodic LAPIC timer, against guests that drown the host in timer interrupts. KVM
    /// (`min_timer_period_us`): 500 µs (200 µs since 4.7, uncertain).
    pub min_timer_period_ns: u64,
}

impl HostConfig {
    /// Linux 3.3 (March 2012): no halt polling; directed yield exists, but acts only where the part has pause-loop
    /// exiting.
    pub fn linux_3_3() -> HostConfig {
        HostConfig {
            hz: 1000,
            tick_phase: TickPhase::default(),
            sched: SchedConfig::default(),
            halt_poll_ns: 0,
            halt_poll_grow: 2,
            halt_poll_grow_start_ns: 10_000,
            halt_poll_shrink: 0,
            pause: PauseHandling::DIRECTED_YIELD_2011,
            pause_controls: PauseControls::INTEL,
            vector_hashing: false,
            avic: AvicConfig::default(),
            apicv: ApicvConfig::default(),
            traces_interrupts: false,
            tsc_hz: 2_930_000_000,
            min_timer_period_ns: 500_000,
        }
    }
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig::linux_3_3()
    }
}

/// Which task groups are made for a guest, below [`VmConfig::parent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmGroup {
    /// None: its threads stand in the parent itself, by default the root group, beside all other threads.
    #[default]
    Root,
    /// In a group of the guest's own.
    Own {
        /// `cpu.shares`: 1024 is the default, 2 to 262144.
        shares: u64,
    },
    /// In a group of the guest's own, each vCPU in a further group of default shares below it, as libvirt does it.
    OwnWithVcpuGroups {
        /// `cpu.shares` of the guest's group.
        shares: u64,
    },
}

/// How much CPU time a group may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Nanoseconds in each period, of all pCPUs together: 1 ms at least, a period of each pCPU at most.
    pub quota_ns: u64,
    /// Nanoseconds: 1 ms to 1 s.
    pub period_ns: u64,
}

/// A guest's network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nic {
    /// Software of the host: vhost, tap and bridge.
    #[default]
    Vhost,
    /// Hardware with virtio's queues (vDPA), assigned: the guest rings it without an exit, and its interrupts go
    /// through the IOMMU.
    Assigned,
}

/// What a guest is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Halting for a lock and the kick hypercall (`KVM_FEATURE_PV_UNHALT`).
    pub pv_unhalt: bool,
    /// Directed yield by hypercall (`KVM_FEATURE_PV_SCHED_YIELD`, since 5.3).
    pub pv_sched_yield: bool,
    /// IPIs by hypercall (`KVM_FEATURE_PV_SEND_IPI`, since 4.19).
    pub pv_send_ipi: bool,
    /// Ends of interrupts by a memory bit (`KVM_FEATURE_PV_EOI`, since 3.6).
    pub pv_eoi: bool,
    /// Flushing the TLB of preempted vCPUs on their behalf (`KVM_FEATURE_PV_TLB_FLUSH`, since 4.16). Of use only with
    /// the preempted flag.
    pub pv_tlb_flush: bool,
    /// The steal-time record.
    pub steal_time: bool,
    /// Whether the host keeps the record's preempted flag (since 4.10, uncertain).
    pub preempted_flag: bool,
    /// Only vCPU 0 runs from the start: the others wait for INIT and SIPI, as a real machine's do. Else all run.
    pub waits_for_sipi: bool,
    /// The I/O APIC is the VMM's (split irqchip, 4.5, uncertain; all that AVIC worked with until 5.5): accesses to its
    /// page, and EOIs of its level-triggered interrupts, go to userspace and back.
    pub split_irqchip: bool,
    /// Destinations of 15 bits in MSIs (`KVM_FEATURE_MSI_EXT_DEST_ID`, since 5.12, uncertain).
    pub msi_ext_dest_id: bool,
    /// The hint that vCPUs are never preempted for long.
    pub realtime_hint: bool,
    /// Nice level of the vCPU threads, -20 to 19.
    pub nice: i8,
    /// Task groups of the vCPU threads.
    pub group: VmGroup,
    /// The group in or below which they are; `None`: the root group.
    pub parent: Option<GroupId>,
    /// Quota of the guest's own group, if it has one.
    pub quota: Option<Quota>,
    /// Quota of each vCPU's group, if they have some.
    pub vcpu_quota: Option<Quota>,
    /// Bytes of guest memory, from address 0: words that the guest wants the host to use must lie within.
    pub memory_bytes: u64,
    /// Whether AVIC virtualizes its LAPICs, where the host uses it.
    pub avic: bool,
    /// Whether APICv virtualizes its LAPICs, where the host uses it.
    pub apicv: bool,
    /// What its network device is, if it has one.
    pub nic: Nic,
    /// What else keeps AVIC off for this guest from the start, where the host uses it.
    pub apic_inhibits: Inhibits,
    /// Halt-polling limit of this guest instead of [`HostConfig::halt_poll_ns`]. Nanoseconds.
    pub halt_poll_cap_ns: Option<u64>,
    /// Faults planted by tests.
    #[doc(hidden)]
    pub faults: PvFaults,
}

/// Faults in what host and machine do for a guest, for tests that must see them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvFaults {
    /// The bit that asks for a TLB flush is thrown away.
    pub flush_lost: bool,
    /// The record's state byte is read first and cleared later.
    pub exchange_torn: bool,
    /// An exit leaves the bit for ends of interrupts set.
    pub pv_eoi_stays: bool,
    /// The end of an interrupt is left to the guest although another one waits.
    pub pv_eoi_hides_next: bool,
    /// An end that the guest left in memory is not carried out.
    pub pv_eoi_lost: bool,
    /// IPIs by hypercall start one ID too high.
    pub pv_ipi_shifted: bool,
}

impl Default for VmConfig {
    fn default() -> VmConfig {
        VmConfig {
            pv_unhalt: true,
            pv_sched_yield: false,
            pv_send_ipi: false,
            pv_eoi: false,
            pv_tlb_flush: false,
            steal_time: true,
            preempted_flag: true,
            waits_for_sipi: false,
            split_irqchip: false,
            msi_ext_dest_id: false,
            realtime_hint: false,
            nice: 0,
            group: VmGroup::Root,
            parent: None,
            quota: None,
            vcpu_quota: None,
            memory_bytes: 4 << 30,
            avic: true,
            apicv: true,
            nic: Nic::default(),
            apic_inhibits: Inhibits::NONE,
            halt_poll_cap_ns: None,
            faults: PvFaults::default(),
        }
    }
}

/// A host task that is no vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskConfig {
    /// Nice level, -20 to 19.
    pub nice: i8,
    /// pCPUs that it may run on; empty: all.
    pub affinity: Vec<u32>,
    /// Its task group; `None`: the root group.
    pub group: Option<GroupId>,
    /// It is preempted only where it says so ([`Event::TaskYields`](crate::Event::TaskYields)), as a task in the kernel
    /// of a host without `CONFIG_PREEMPT`.
    pub voluntary: bool,
    /// It does not run before another task starts it ([`Event::TaskStarts`](crate::Event::TaskStarts)).
    pub dormant: bool,
}
