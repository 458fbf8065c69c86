//! The history: what happens in a run, one value for each happening.

use holdfast_guest::LockClass;
use holdfast_host::{Exit, Host, IdVec, PcpuId, Run, VcpuId, VcpuState, VmId};
use holdfast_machine::avic::Targets;
use holdfast_machine::iommu::Delivery;
use holdfast_machine::{LineId, Picos, Time};

use crate::core::cause::Cause;
use crate::parts::apic::ApicHardware;
use crate::parts::vcpu::Vcpu;
use crate::parts::vm::Vm;

/// What the books see of the machine when something has happened.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Virtual time.
    pub now: Time,
    /// Virtual CPUs.
    pub vcpus: &'a IdVec<VcpuId, Vcpu>,
    /// All guests.
    pub vms: &'a IdVec<VmId, Vm>,
    /// The hypervisor.
    pub host: &'a Host,
    /// The APIC hardware.
    pub apic: &'a ApicHardware,
}

impl View<'_> {
    /// The vCPU `vcpu`.
    #[inline(always)]
    pub fn vcpu(&self, vcpu: VcpuId) -> &Vcpu {
        &self.vcpus[vcpu]
    }

    /// The VM of `vcpu`.
    #[inline(always)]
    pub fn vm_of(&self, vcpu: VcpuId) -> VmId {
        self.vcpus[vcpu].vm
    }
}

/// Something that happened, just now, to a pCPU, a vCPU, a lock or a guest.
///
/// Three happenings of the hot path are not values of this type, because they are folded where they happen: an ordered
/// memory operation (`HistoryHash::operation`), use of pending time (`Books::used`), and the counts of the engine's own
/// work (`EngineStats`).
#[derive(Clone, Copy, Debug)]
pub enum Happened<'a> {
    /// The host chose what `pcpu` does next.
    Chosen { pcpu: PcpuId, run: Run },
    /// `pcpu` executes host code from now on, or no longer.
    HostRuns { pcpu: PcpuId, executes: bool },
    /// The host has handled an event, and may have woken tasks or put them to sleep. Only a timeline is told.
    HostStepped,
    /// The host on `from` interrupts pCPU `to`.
    HostIpiSent { from: PcpuId, to: PcpuId },
    /// Such an interrupt reaches `pcpu`.
    HostIpiArrived { pcpu: PcpuId },

    /// The host enters `vcpu`, with `vector` if it injects one.
    Entered {
        vcpu: VcpuId,
        vector: Option<u8>,
        has_moved: bool,
    },
    /// `vcpu` continues its guest after an interruption without an exit.
    Continued { vcpu: VcpuId },
    /// `vcpu` is in guest mode and is about to be stopped.
    Stops { vcpu: VcpuId },
    /// `vcpu` has left its guest because of `exit`, or of an interrupt (`None`); its time counts to `cause`.
    Exited {
        vcpu: VcpuId,
        cause: Cause,
        exit: Option<&'a Exit>,
    },
    /// The host gets to handle the exit of `vcpu`.
    ExitReachedHost { vcpu: VcpuId },
    /// The host's step for an exit is over.
    ExitHandled,
    /// The state of `vcpu` changed from `before` to its present one.
    StateChanged { vcpu: VcpuId, before: VcpuState },
    /// CPU `vcpu` of the bare-metal kernel is out of its flow, for the host's work.
    NativeStopped { vcpu: VcpuId },
    /// While CPU `vcpu` of the bare-metal kernel is out of any flow, its time counts to `cause` from now on.
    NativeIs { vcpu: VcpuId, cause: Cause },
    /// `vcpu` executes a guest of its own from now on. Its own flow stays out of its guest.
    NestedEntered { vcpu: VcpuId },
    /// That guest has left for the host; the time of `vcpu` counts to `cause`.
    NestedLeft { vcpu: VcpuId, cause: Cause },
    /// The run ends while `vcpu` is out of its guest.
    Ended { vcpu: VcpuId },
    /// Of the time of `vcpu` that counts to `within`, `span` belongs to `cause`.
    Slowed {
        vcpu: VcpuId,
        within: Cause,
        cause: Cause,
        span: Picos,
    },

    /// `vcpu` can take interrupts from now on.
    InterruptsEnabled { vcpu: VcpuId },
    /// The LAPIC of `vcpu` has accepted `vector`.
    Accepted { vcpu: VcpuId, vector: u8 },
    /// `vcpu` takes `vector` from its hardware, without the host.
    Taken { vcpu: VcpuId, vector: u8 },
    /// Hardware executed a write of `vcpu` to its LAPIC; `offset` is known on AMD.
    ApicWritten {
        vcpu: VcpuId,
        offset: Option<u32>,
        value: u32,
    },
    /// HLT of `vcpu` did not exit, since an interrupt was pending.
    HaltSkipped { vcpu: VcpuId },
    /// Hardware executed an access of `vcpu` to its LAPIC without an exit.
    ApicAccessed { vcpu: VcpuId },
    /// Hardware begins to send an IPI of `vcpu`.
    IpiSent { vcpu: VcpuId },
    /// AVIC pended an IPI of `vcpu` for `targets`, rang `doorbells`, and needs an exit if `exits`.
    IpiPended {
        vcpu: VcpuId,
        targets: &'a Targets,
        doorbells: u64,
        exits: bool,
    },
    /// APICv posted the IPI in the ICR of `vcpu`, with a notification if `notified`.
    IpiPosted { vcpu: VcpuId, notified: bool },
    /// Host software on `from` rang AVIC's doorbell of `to`, or notified it of posted interrupts.
    HostRang { from: PcpuId, to: PcpuId },
    /// A doorbell for `vcpu` found its pCPU out of guest mode.
    DoorbellMissed { vcpu: VcpuId },
    /// `vcpu` took a notification of posted interrupts in guest mode.
    Notified { vcpu: VcpuId },
    /// `device` signaled its interrupt, for guest `vm` if it is assigned to one.
    DeviceSignaled {
        device: u16,
        vm: Option<VmId>,
        delivery: &'a Delivery,
    },

    /// `vcpu` waits, in guest mode, from now on or again: for a lock or for the acknowledgement of an IPI.
    Waits { vcpu: VcpuId },
    /// `vcpu` has waited for its lock up to now.
    Waited { vcpu: VcpuId },
    /// `vcpu`, in guest mode, began to wait for the lock in `line`.
    ContentionBegan { vcpu: VcpuId, line: LineId },
    /// `vcpu` no longer waits for the lock in `line`.
    ContentionEnded { vcpu: VcpuId, line: LineId },
    /// `vcpu` holds the lock in `line`.
    LockAcquired { vcpu: VcpuId, line: LineId },
    /// The lock in `line` is free.
    LockReleased { vcpu: VcpuId, line: LineId },
    /// The lock in `line`, which `vcpu` has taken, protects `class`.
    LockNamed {
        vcpu: VcpuId,
        line: LineId,
        class: LockClass,
    },
    /// `from` tried to yield to `to`; `done` if the scheduler took it up.
    DirectedYield { from: VcpuId, to: VcpuId, done: bool },

    /// The measured interval of `vm` begins.
    IntervalBegan { vm: VmId },
    /// The measured interval of `vm` ends.
    IntervalEnded { vm: VmId },
    /// All guests stop for a live migration.
    GuestsStopped,
    /// All guests continue after it.
    GuestsResumed,
    /// The VMMs make running vCPUs sleep for `percent` of the time from now on.
    GuestsThrottled { percent: u32 },
    /// The state of all vCPUs was compared with `host`, at the point of a migration that `when` names.
    HostCompared { host: &'a Host, when: &'static str },
}
