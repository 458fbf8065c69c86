//! Parameters of the host kernel, the hypervisor, and the features offered to each guest.
//!
//! Defaults are those of Linux 3.3 ([`HostConfig::linux_3_3`]). "Bracketed" means that the value was read on both sides
//! of that version.

use alloc::vec::Vec;

use crate::GroupId;
use crate::faults::Planted;
use crate::interrupts::Inhibits;
use crate::interrupts::apicv::ApicvConfig;
use crate::interrupts::avic::{AvicConfig, AvicEnable};
use crate::linux::Linux;
use crate::pause::config::{PauseControls, PauseHandling};
use crate::quota::Quota;
use crate::sched::config::{Preempt, SchedConfig};
use crate::sched::seam::PolicyKind;

/// Phase between the scheduler ticks of the pCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TickPhase {
    /// All ticks at the same time: Linux since 2.6.36, which removed the old skew, and the default (`skew_tick=0`)
    /// since 3.6 made it an option. Slices end on ticks, so co-scheduled pCPUs keep their phases.
    #[default]
    Aligned,
    /// Spread over the first half of a period, as with `skew_tick=1`.
    HalfSkewed,
    /// Spread evenly over the whole period.
    Spread,
}

/// Parameters of the host kernel and the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The version of the host's Linux. The other parameters are what it implies, unless they are set themselves.
    pub kernel: Linux,
    /// Scheduler ticks of each pCPU in a second (CONFIG_HZ).
    pub hz: u32,
    /// Phase between the pCPUs' ticks.
    pub tick_phase: TickPhase,
    /// The host's scheduler.
    pub sched: SchedConfig,
    /// The policy on top of that scheduler. `kernel` leaves all decisions to it.
    pub policy: PolicyKind,
    /// No two vCPUs of a guest are on one pCPU while they may run on another that has none of them: where they wake,
    /// and where load balancing moves them. What a policy itself moves (a handover) it does not change.
    pub siblings_apart: bool,
    /// The slices of vCPUs end at multiples of this time, and then pCPUs pick vCPUs of one guest where its share bears
    /// it. So a guest is preempted as a whole. A woken thread may come earlier. 10 us to 100 ms.
    ///
    /// `None`: each slice ends when the scheduler says so.
    pub slices_aligned_ns: Option<u64>,
    /// Longest time for which the pCPU of a halted vCPU polls before the vCPU's thread sleeps (kvm `halt_poll_ns`).
    /// With 0 it never polls.
    pub halt_poll_ns: u64,
    /// Factor by which the polling time grows (kvm `halt_poll_ns_grow`).
    pub halt_poll_grow: u64,
    /// First non-zero polling time (kvm `halt_poll_ns_grow_start`).
    pub halt_poll_grow_start_ns: u64,
    /// Divisor by which the polling time shrinks (kvm `halt_poll_ns_shrink`). With 0 it drops to 0 at once.
    pub halt_poll_shrink: u64,
    /// What the host does at a pause exit: one handler as it was introduced, or everything that a kernel version does
    /// about spinning guests.
    pub pause: PauseHandling,
    /// Parameters of the CPU's pause detection.
    pub pause_controls: PauseControls,
    /// AMD's virtual interrupt controller.
    pub avic: AvicConfig,
    /// Whether HLT exits only if no virtual interrupt is pending, on CPUs that can do so and for guests under AVIC (the
    /// idle HLT intercept, 6.13, uncertain).
    pub idle_hlt: bool,
    /// Intel's APIC virtualization.
    pub apicv: ApicvConfig,
    /// The CPU has process-context identifiers, and so have vCPUs.
    pub pcid: bool,
    /// Enables the tracepoint of LAPICs ([`Command::AcceptIrq`](crate::Command::AcceptIrq)).
    pub traces_interrupts: bool,
    /// Frequency of the time-stamp counter, for the LAPIC timer's deadline mode.
    pub tsc_hz: u64,
    /// Shortest period of a periodic LAPIC timer. It protects the host from a flood of timer interrupts. KVM
    /// (`min_timer_period_us`): 500 µs (200 µs since 4.7, uncertain).
    pub min_timer_period_ns: u64,
    /// Faults planted by tests.
    #[doc(hidden)]
    pub planted: Planted,
}

impl HostConfig {
    /// Returns the parameters of Linux 3.3 (March 2012): no halt polling, and directed yield only where the CPU has
    /// pause-loop exiting.
    pub fn linux_3_3() -> HostConfig {
        HostConfig {
            kernel: Linux::V3_3,
            hz: 1000,
            tick_phase: TickPhase::default(),
            sched: SchedConfig::default(),
            policy: PolicyKind::KERNEL,
            siblings_apart: false,
            slices_aligned_ns: None,
            halt_poll_ns: 0,
            halt_poll_grow: 2,
            halt_poll_grow_start_ns: 10_000,
            halt_poll_shrink: 0,
            pause: PauseHandling::DIRECTED_YIELD_2011,
            pause_controls: PauseControls::INTEL,
            avic: AvicConfig::default(),
            idle_hlt: false,
            apicv: ApicvConfig::default(),
            pcid: false,
            traces_interrupts: false,
            tsc_hz: 2_930_000_000,
            min_timer_period_ns: 500_000,
            planted: Planted::default(),
        }
    }

    /// Returns the parameters of `kernel`: its scheduler and preemption model, its handling of pause exits, its halt
    /// polling, and the APIC virtualization that it uses where the CPU has it. Sources: docs/spec/host.md and
    /// docs/spec/interrupts.md. The tick is Debian's: 250 Hz from 4.12 on, before 1000 Hz as in the published
    /// experiments.
    pub fn of(kernel: Linux) -> HostConfig {
        let since = |first: Linux| kernel >= first;
        let first = HostConfig::linux_3_3();
        let pauses = PauseHandling::PRESETS.iter().find(|(name, _)| *name == kernel.pauses());
        HostConfig {
            kernel,
            hz: if since(Linux::V4_12) { 250 } else { first.hz },
            sched: SchedConfig {
                // 7.0 removed "voluntary". Servers have "lazy".
                preempt: if since(Linux::V7_3) {
                    Preempt::Lazy
                } else {
                    Preempt::Voluntary
                },
                ..SchedConfig::of(kernel.scheduler())
            },
            halt_poll_ns: if since(Linux::V4_12) { 200_000 } else { 0 },
            // 0 in 4.12, 2 in 6.12. Uncertain: the versions between.
            halt_poll_shrink: if since(Linux::V6_12) { 2 } else { 0 },
            pause: pauses.expect("a test looks up every kernel's handling").1,
            avic: AvicConfig {
                enable: if since(Linux::V6_18) {
                    AvicEnable::Auto
                } else {
                    AvicEnable::Off
                },
                x2avic: since(Linux::V6_1),
                hybrid: since(Linux::V6_1),
                ..first.avic
            },
            idle_hlt: since(Linux::V6_18),
            apicv: ApicvConfig {
                enable: since(Linux::V4_12),
                ipiv: since(Linux::V6_1),
                ..first.apicv
            },
            min_timer_period_ns: if since(Linux::V4_12) {
                200_000
            } else {
                first.min_timer_period_ns
            },
            ..first
        }
    }
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig::linux_3_3()
    }
}

/// The task groups made for a guest, below [`VmConfig::parent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmGroup {
    /// No group. Its threads are in the parent itself, by default the root group, next to all other threads.
    #[default]
    Root,
    /// A group of its own.
    Own {
        /// `cpu.shares`, 2 to 262144. The default of Linux is 1024.
        shares: u64,
    },
    /// A group of its own, and in it a group of default shares for each vCPU, as with libvirt.
    OwnWithVcpuGroups {
        /// `cpu.shares` of the guest's group.
        shares: u64,
    },
}

/// The most vCPUs of a VM: as many as logical IDs of x2APIC mode can name.
pub const VCPUS_MAX: u32 = holdfast_abi::lapic::X2APIC_IDS;

/// A guest's network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nic {
    /// Software of the host: vhost, tap and bridge.
    #[default]
    Vhost,
    /// Assigned hardware with virtio queues (vDPA). The guest rings it without an exit, and its interrupts go through
    /// the IOMMU.
    Assigned,
}

/// Configuration of a VM, and the features it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Whether the host offers halt and kick for locks (KVM_FEATURE_PV_UNHALT).
    pub pv_unhalt: bool,
    /// Whether the host offers directed yield by hypercall (KVM_FEATURE_PV_SCHED_YIELD, 5.3).
    pub pv_sched_yield: bool,
    /// Whether the host offers IPIs by hypercall (KVM_FEATURE_PV_SEND_IPI, 4.19).
    pub pv_send_ipi: bool,
    /// Whether the host offers the end of an interrupt by a bit in memory (KVM_FEATURE_PV_EOI, 3.6).
    pub pv_eoi: bool,
    /// Whether the host lets the guest switch off its halt polling (KVM_FEATURE_POLL_CONTROL, 5.3, uncertain).
    pub poll_control: bool,
    /// Whether the host offers to flush the TLBs of preempted vCPUs (KVM_FEATURE_PV_TLB_FLUSH, 4.16). It needs the
    /// steal-time record with its preempted flag.
    pub pv_tlb_flush: bool,
    /// Whether the host offers the steal-time record (KVM_FEATURE_STEAL_TIME).
    pub steal_time: bool,
    /// Whether the host maintains the preempted flag of the steal-time record (4.10, uncertain).
    pub preempted_flag: bool,
    /// Whether the host reads a word of the steal-time record in which the guest says what each vCPU is in the midst
    /// of. No KVM has it.
    pub guest_word: bool,
    /// Whether the host writes into the steal-time record when the vCPU's slice ends. No KVM does.
    pub slice_end: bool,
    /// The guest's CPU 0 starts the others by INIT and SIPI, one after another, as on real hardware. Otherwise all
    /// vCPUs run from power-on.
    pub waits_for_sipi: bool,
    /// Whether the guest is offered hardware virtualization (SVM or VMX), so that it can be a hypervisor.
    pub nested: bool,
    /// Whether the VM is only added: its vCPUs are off until [`VmmEvent::VmStarts`](crate::VmmEvent::VmStarts).
    pub dormant: bool,
    /// Whether the threads of the vCPUs sleep until the VMM has created all of them, and are then woken by its main
    /// thread, as with QEMU (`qemu_init_vcpu`, `resume_all_vcpus`). So none counts as load where the next is placed.
    /// Otherwise each runs from its creation on.
    ///
    /// It applies to a VM that [starts](crate::VmmEvent::VmStarts) while the host runs.
    pub vcpus_wait: bool,
    /// Whether the guest's HLT, MWAIT and PAUSE do not exit (QEMU `-overcommit cpu-pm=on`, KVM_CAP_X86_DISABLE_EXITS).
    ///
    /// An idle vCPU keeps its pCPU, and pause loops are not seen. The guest is not offered PV_UNHALT: what halts could
    /// not be kicked. The guest is offered MWAIT, and takes no part in directed yields and flushes by the host.
    pub cpu_pm: bool,
    /// Whether the host says that vCPUs are never preempted for long (KVM_HINTS_REALTIME).
    pub realtime_hint: bool,
    /// Nice level of the vCPU threads, -20 to 19.
    pub nice: i8,
    /// Task groups of the vCPU threads.
    pub group: VmGroup,
    /// The group in or below which its groups are. `None`: the root group.
    pub parent: Option<GroupId>,
    /// Quota of the guest's own group, if it has one.
    pub quota: Option<Quota>,
    /// Quota of each vCPU's group, if there are such groups.
    pub vcpu_quota: Option<Quota>,
    /// Bytes of guest memory, from address 0. Records that the guest shares with the host must lie within.
    pub memory_bytes: u64,
    /// The guest's network device.
    pub nic: Nic,
    /// Time for which the VMM's device model works on an access to a device that it emulates. Nanoseconds.
    ///
    /// Default 900 ns, an estimate: half of what is left of an access to the PCI configuration space (4 us) without its
    /// two exits.
    pub device_ns: u64,
    /// Reasons for which hardware does not virtualize the guest's LAPICs, as long as it exists. Each reason has its
    /// name in KVM.
    ///
    /// A VM has such reasons by devices or guests that are not simulated: a timer chip that reinjects missed interrupts
    /// (`pit_reinj`), encrypted memory (`sev`), automatic EOI of Hyper-V (`hyperv`).
    pub apic_inhibits: Inhibits,
    /// Longest halt polling for this guest (KVM_CAP_HALT_POLL).
    ///
    /// `None` is [`HostConfig::halt_poll_ns`].
    pub halt_poll_cap_ns: Option<u64>,
    /// Its vCPUs begin with the longest polling time, as after a time with short halts. Otherwise they begin without
    /// polling, as after creation.
    pub has_polled: bool,
}

impl VmConfig {
    /// Whether waiters for locks may halt and be kicked. Where HLT does not exit, KVM withdraws the feature
    /// (`kvm_update_cpuid_runtime`).
    pub(crate) fn offers_unhalt(&self) -> bool {
        self.pv_unhalt && !self.cpu_pm
    }
}

impl VmConfig {
    /// Returns the features that the KVM of `kernel` offers a guest with all of them (QEMU `-cpu host`). Steal time
    /// with its preempted flag and PV_UNHALT are offered by all versions: an older guest does not look for them.
    pub fn of(kernel: Linux) -> VmConfig {
        let since = |first: Linux| kernel >= first;
        VmConfig {
            pv_eoi: since(Linux::V4_12),
            pv_send_ipi: since(Linux::V6_1),
            pv_tlb_flush: since(Linux::V6_1),
            pv_sched_yield: since(Linux::V6_1),
            poll_control: since(Linux::V6_1),
            ..VmConfig::default()
        }
    }
}

impl Default for VmConfig {
    fn default() -> VmConfig {
        VmConfig {
            pv_unhalt: true,
            pv_sched_yield: false,
            pv_send_ipi: false,
            pv_eoi: false,
            poll_control: false,
            pv_tlb_flush: false,
            steal_time: true,
            preempted_flag: true,
            guest_word: false,
            slice_end: false,
            waits_for_sipi: false,
            nested: false,
            dormant: false,
            vcpus_wait: false,
            cpu_pm: false,
            realtime_hint: false,
            nice: 0,
            group: VmGroup::Root,
            parent: None,
            quota: None,
            vcpu_quota: None,
            memory_bytes: 4 << 30,
            nic: Nic::default(),
            device_ns: 900,
            apic_inhibits: Inhibits::NONE,
            halt_poll_cap_ns: None,
            has_polled: false,
        }
    }
}

/// A host task that is not a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskConfig {
    /// Nice level, -20 to 19.
    pub nice: i8,
    /// pCPUs that it may run on. Empty: all.
    pub affinity: Vec<u32>,
    /// Its task group. `None`: the root group.
    pub group: Option<GroupId>,
    /// It is preempted only at its yield points ([`TaskEvent::Yields`](crate::TaskEvent::Yields)), like a task in the
    /// kernel of a host without `CONFIG_PREEMPT`.
    pub voluntary: bool,
    /// It does not run until another task starts it ([`TaskEvent::Starts`](crate::TaskEvent::Starts)).
    pub dormant: bool,
}
