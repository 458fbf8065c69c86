//! The boundary: what happens to the host, and what it wants done.
//!
//! - **Order is time.** Commands take effect in the order in which they were appended. Each follows, in time, the
//!   [`Command::Charge`]s that precede it for the pCPU whose event is being handled; so a [`Command::State`] or
//!   [`Command::Ipi`] between two charges happens between them.
//! - **One `Run` per event.** [`Host::handle`](crate::Host::handle) appends exactly one [`Command::Run`] for the event's
//!   pCPU, last of all that concerns this pCPU. Other pCPUs hear of changes by [`Command::Ipi`]. The one exception is a
//!   pCPU that polls for a halted vCPU: its loop sees changes in memory, so it may get charges and a `Run` at any event,
//!   even before its own `Run::Poll` has begun (the newer `Run` replaces the older one).
//! - **Host code is not interruptible.** Interrupts that come while a pCPU executes host code are to be delivered right
//!   after its next `Run` begins: as an exit in guest mode, as [`Event::Interrupt`] otherwise.
//! - **A fault precedes the guest's next step.** Replies and faults stand before the `Run` that enters their vCPU.

mod cost;

use holdfast_abi::avic::{IncompleteIpi, Unaccelerated};

use crate::avic::Inhibit;
#[cfg(doc)]
use crate::config::TaskConfig;
use crate::spin::config::PauseControls;

pub use cost::Cost;

/// Host time in nanoseconds since the machine's power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A physical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcpuId(pub u32);

/// A virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub u32);

/// A virtual CPU: dense over all VMs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId(pub u32);

/// A schedulable thread of the host: a vCPU's or any other task's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A task group (cgroup of the cpu controller). Group 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What the exit information says of the guest. The default is what INIT leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuestState {
    /// RFLAGS.IF.
    pub interrupts_enabled: bool,
    /// Current privilege level, 0-3.
    pub cpl: u8,
    /// CR8, bits 3:0 (SVM's V_TPR): what [`Command::SetCr8`] has set and the guest has not changed since.
    pub cr8: u8,
    /// The injected vector whose delivery this exit interrupted (SVM's EXITINTINFO): it is injected again.
    pub undelivered: Option<u8>,
    /// Bit 0 of the byte that [`Command::PvEoi`] has set for this stay in guest mode: the exit tests and clears it in one
    /// step. Without that command it is not looked at.
    pub pv_eoi: bool,
}

/// Why a vCPU left guest mode. Operands are the guest's: any value can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A host interrupt is pending on this pCPU.
    ExternalInterrupt(HostInterrupt),
    /// HLT.
    Hlt,
    /// VMCALL or VMMCALL: number and four arguments. Answered by [`Command::Reply`].
    Hypercall {
        /// RAX.
        number: u64,
        /// RBX, RCX, RDX, RSI.
        arguments: [u64; 4],
    },
    /// CPUID; answered by [`Command::ReplyCpuid`].
    Cpuid {
        /// EAX.
        leaf: u32,
    },
    /// RDMSR; answered by [`Command::Reply`], or a fault.
    ReadMsr {
        /// ECX.
        msr: u32,
    },
    /// WRMSR.
    WriteMsr {
        /// ECX.
        msr: u32,
        /// EDX:EAX.
        value: u64,
    },
    /// A store to the emulated LAPIC's page.
    ApicWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// A load from that page; answered by [`Command::Reply`].
    ApicRead {
        /// Offset in the page.
        offset: u32,
    },
    /// A store to an address where no memory is, and no page of the emulated LAPIC: the I/O APIC's registers, or nothing.
    MmioWrite {
        /// Guest-physical address.
        address: u64,
        /// The bytes stored, zero-extended.
        value: u64,
        /// How many: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// A load from such an address; answered by [`Command::Reply`].
    MmioRead {
        /// Guest-physical address.
        address: u64,
        /// How many bytes: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// AVIC: hardware could not deliver an IPI to all its targets (exit 0x401).
    AvicIncompleteIpi(IncompleteIpi),
    /// AVIC: an access to a register that hardware does not do alone (exit 0x402); reads are answered by [`Command::Reply`].
    AvicNoAccel {
        /// What the control block says.
        exit: Unaccelerated,
        /// Where in the page the instruction accesses, as its decoding has it: the control block names the register alone.
        offset: u32,
        /// What the instruction stores.
        value: u32,
    },
    /// APICv: a write to the register at this offset is stored, and its effect is the host's (exit reason 56).
    ApicvWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// APICv: a level-triggered interrupt has ended (exit reason 45).
    ApicvEoi {
        /// Its vector.
        vector: u8,
    },
    /// OUT to an I/O port. Where a device's doorbell is (ioeventfd), it wakes the device's thread; elsewhere nothing happens.
    PortWrite {
        /// The port.
        port: u16,
        /// What is written, zero-extended.
        value: u32,
    },
    /// The guest can take interrupts again, and the host asked to be told ([`Run::Guest`]'s `window`).
    InterruptWindow,
    /// A write to CR8, while [`Command::InterceptCr8`] asks for it.
    WriteCr8 {
        /// The value; bits 3:0 count.
        value: u64,
    },
    /// IRET, while a non-maskable interrupt that was injected had not ended: it has now.
    Iret,
    /// What only the VMM's user space can deal with, such as an access to a device that it emulates. The vCPU's thread
    /// returns from `KVM_RUN` and is a task like any other, until one says [`Event::VcpuRuns`].
    Userspace,
    /// Pause-loop exiting: PAUSE after PAUSE for longer than the window.
    Pause,
    /// The guest begins (VMRUN), or ends, to run a guest of its own.
    Nested {
        /// Whether it runs one from now on.
        runs: bool,
    },
    /// The vCPU is done for ever: powered off, or crashed.
    Shutdown,
}

/// What can interrupt a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostInterrupt {
    /// The pCPU's timer, as last set by [`Command::Timer`].
    Timer,
    /// Another pCPU sent a reschedule IPI ([`Command::Ipi`]).
    Reschedule,
    /// A call from another CPU of the kernel that runs beside the guests; its own handler has dealt with it, and the host
    /// only hears that the interrupt came.
    Call,
    /// A device's interrupt, with this vector of the host's.
    Device(u8),
    /// The IOMMU's, for its guest APIC log.
    GaLog,
    /// The wake-up vector of posted interrupts: something was posted for a vCPU that sleeps on this pCPU's list.
    PostedWakeup,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The vCPU that runs on `pcpu` left guest mode. The pCPU executes host code until the next [`Command::Run`] for it.
    Exit {
        /// Where.
        pcpu: PcpuId,
        /// Why.
        exit: Exit,
        /// The guest's state.
        guest: GuestState,
    },
    /// An interrupt came while `pcpu` was not in guest mode: it ran a task, polled, or was idle.
    Interrupt {
        /// Where.
        pcpu: PcpuId,
        /// Which.
        interrupt: HostInterrupt,
    },
    /// The task that runs on `pcpu` (not a vCPU) sleeps, until a time or for ever.
    TaskSleeps {
        /// Where.
        pcpu: PcpuId,
        /// When it wants to run again.
        until: Option<Nanos>,
    },
    /// The task that runs on `pcpu` can be preempted now: it returns to user mode, or asks in the middle of its kernel's
    /// work (`cond_resched`). For a [voluntary](TaskConfig) one there is no other occasion but its sleep.
    TaskYields {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` gives way to others that are runnable there, if the scheduler's rule lets it
    /// (`sched_yield`).
    TaskGivesWay {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` wakes `task`. One that has not gone to sleep yet will not.
    TaskWakes {
        /// Where.
        pcpu: PcpuId,
        /// Whom.
        task: TaskId,
    },
    /// The task that runs on `pcpu` creates `task`, which starts on the idlest pCPU: for the first time, or anew after its
    /// end. One that has not quite ended yet starts when it has.
    TaskStarts {
        /// Where.
        pcpu: PcpuId,
        /// Whom.
        task: TaskId,
    },
    /// The task that runs on `pcpu` executes a program: its caches are worth nothing any more, so it moves to the idlest
    /// pCPU.
    TaskExecutes {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` ends.
    TaskEnds {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu`, a thread of the VMM, enters `KVM_RUN` for `vcpu`, which has left it by
    /// [`Exit::Userspace`]: the thread that had it last, or another one.
    VcpuRuns {
        /// Where.
        pcpu: PcpuId,
        /// Which.
        vcpu: VcpuId,
    },
    /// A device of `vm` signals an interrupt by a message (irqfd): host work on `pcpu`, which runs a task (say, vhost's),
    /// polls, or is idle. Goes to the LAPICs that address and data name; a message to elsewhere goes nowhere.
    Msi {
        /// Where the host's side of the device works.
        pcpu: PcpuId,
        /// Whose device it is.
        vm: VmId,
        /// Where the message is stored, as the guest set it up: any value can come.
        address: u64,
        /// What is stored: likewise.
        data: u32,
    },
    /// The VMM inhibits AVIC in `vm` for a reason, or does so no longer. Host work as for [`Event::Msi`].
    Inhibit {
        /// Where the VMM works.
        pcpu: PcpuId,
        /// Which VM.
        vm: VmId,
        /// Why.
        reason: Inhibit,
        /// Whether from now on, or no longer.
        inhibited: bool,
    },
    /// A task sets where the thread of `vcpu` may run (`sched_setaffinity`; libvirt's vcpupin). Host work as for
    /// [`Event::Msi`].
    Affinity {
        /// Where that task runs.
        pcpu: PcpuId,
        /// Whose thread.
        vcpu: VcpuId,
        /// The one pCPU where it may run from now on; `None`: all.
        only: Option<PcpuId>,
    },
    /// Hardware has set a bit in the IRR, or the descriptor, of the vCPU for which `pcpu` polls: its loop sees it. To be reported for
    /// polling pCPUs; harmless for others.
    Posted {
        /// Where.
        pcpu: PcpuId,
    },
    /// A device of `vm` asserts its line to the I/O APIC, or does so no longer. Host work as for [`Event::Msi`].
    Line {
        /// Where the host's side of the device works.
        pcpu: PcpuId,
        /// Whose device it is.
        vm: VmId,
        /// The pin, 0-23: the host's own wiring.
        pin: u32,
        /// Whether the line is asserted from now on.
        level: bool,
    },
}

impl Event {
    /// The pCPU on which it happened.
    pub fn pcpu(&self) -> PcpuId {
        match *self {
            Event::Exit { pcpu, .. }
            | Event::Interrupt { pcpu, .. }
            | Event::TaskSleeps { pcpu, .. }
            | Event::TaskYields { pcpu }
            | Event::TaskGivesWay { pcpu }
            | Event::TaskWakes { pcpu, .. }
            | Event::TaskStarts { pcpu, .. }
            | Event::TaskExecutes { pcpu }
            | Event::TaskEnds { pcpu }
            | Event::VcpuRuns { pcpu, .. }
            | Event::Msi { pcpu, .. }
            | Event::Inhibit { pcpu, .. }
            | Event::Affinity { pcpu, .. }
            | Event::Posted { pcpu }
            | Event::Line { pcpu, .. } => pcpu,
        }
    }
}

/// What a pCPU does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// Enters guest mode.
    Guest {
        /// The vCPU to enter.
        vcpu: VcpuId,
        /// A vector to inject with this entry.
        inject: Option<u8>,
        /// Whether to exit with [`Exit::InterruptWindow`] as soon as the guest can take an interrupt.
        window: bool,
    },
    /// Runs a host task that is no vCPU.
    Task(TaskId),
    /// Busily waits for a halted vCPU's wake-up (halt polling); ends by an interrupt or a further command.
    Poll(VcpuId),
    /// Nothing to run.
    Idle,
}

/// A vCPU's life (`host.md` §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VcpuState {
    /// In guest mode.
    InGuest,
    /// On its pCPU, the host handles its exit.
    HandlingExit,
    /// Halted, its pCPU polls for its wake-up.
    Polling,
    /// Ready to run, another thread has its pCPU.
    Preempted,
    /// Halted, its thread sleeps.
    Blocked,
    /// Woken, not yet on a pCPU.
    Woken,
    /// Its thread sleeps after a pause exit, in the handler of 2.6.33 to 2.6.38.
    PauseSleep,
    /// Out of `KVM_RUN`, in the VMM's user space; what its thread does there is not the vCPU's.
    Userspace,
    /// Powered off or crashed.
    Dead,
    /// Ready to run, its task group's quota is spent.
    Throttled,
}

/// What the host wants done. For each pCPU, costs add up until the next [`Command::Run`] for it, which starts after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `pcpu` spends `cost`, `count` times, before its next `Run`.
    Charge {
        /// Where.
        pcpu: PcpuId,
        /// What.
        cost: Cost,
        /// How many times.
        count: u32,
    },
    /// `pcpu` does this from now on, after what it has been charged.
    Run {
        /// Where.
        pcpu: PcpuId,
        /// What.
        run: Run,
    },
    /// Sets the one timer of `pcpu`, replacing what was set; `None` stops it.
    Timer {
        /// Where.
        pcpu: PcpuId,
        /// When [`HostInterrupt::Timer`] shall come; never before the present.
        at: Option<Nanos>,
    },
    /// `from` sends `to` a reschedule IPI.
    Ipi {
        /// Sender.
        from: PcpuId,
        /// Receiver.
        to: PcpuId,
    },
    /// `vcpu` takes a non-maskable interrupt with its next entry; its IRET is to be reported ([`Exit::Iret`]).
    InjectNmi {
        /// Whose.
        vcpu: VcpuId,
    },
    /// CR8 of `vcpu` is `value` from its next entry on: the guest has changed its task priority by another way.
    SetCr8 {
        /// Whose.
        vcpu: VcpuId,
        /// Bits 3:0.
        value: u8,
    },
    /// Whether writes of `vcpu` to CR8 exit ([`Exit::WriteCr8`]) from its next entry on: only while its task priority holds
    /// a pending interrupt back.
    InterceptCr8 {
        /// Whose.
        vcpu: VcpuId,
        /// Whether they do; not so at first.
        on: bool,
    },
    /// `vcpu` is reset as by INIT: whatever it did is gone, interrupts are masked. If it is no bootstrap processor, it waits
    /// for [`Command::Startup`].
    Init {
        /// Whose.
        vcpu: VcpuId,
    },
    /// `vcpu`, which INIT has reset, begins to execute in real mode at the page `vector`.
    Startup {
        /// Whose.
        vcpu: VcpuId,
        /// Bits 19:12 of the physical address.
        vector: u8,
    },
    /// `from` sends `to` an interrupt that says: something is posted. In guest mode hardware takes it without an exit if `vector`
    /// is the notification vector, elsewhere it is nothing.
    Notify {
        /// Sender.
        from: PcpuId,
        /// Receiver.
        to: PcpuId,
        /// The vector.
        vector: u8,
    },
    /// The AVIC doorbell of `to` is rung: a vCPU in guest mode there looks at its IRR, and nothing else happens.
    Doorbell {
        /// Receiver.
        to: PcpuId,
    },
    /// The result of a hypercall (RAX), an MSR read (EDX:EAX) or a LAPIC read.
    Reply {
        /// Whose.
        vcpu: VcpuId,
        /// The value.
        value: u64,
    },
    /// The result of CPUID.
    ReplyCpuid {
        /// Whose.
        vcpu: VcpuId,
        /// EAX, EBX, ECX, EDX.
        value: [u32; 4],
    },
    /// The guest takes a general-protection fault for the instruction that exited.
    Fault {
        /// Whose.
        vcpu: VcpuId,
    },
    /// Adds to the steal time of the record at `address`, under its version protocol, and exchanges `preempted` with 0 in one
    /// step.
    StealTime {
        /// Where a flush takes its time.
        pcpu: PcpuId,
        /// Whose.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
        /// Nanoseconds to add.
        steal: u64,
        /// If the exchange finds [`FLUSH_TLB`](holdfast_abi::StealTime::FLUSH_TLB), the part flushes the guest's translations
        /// of this vCPU before it enters.
        flush: bool,
    },
    /// Sets bit 0 of the byte at `address`, which is in the guest's memory. The next exit tests and clears it
    /// ([`GuestState::pv_eoi`]).
    PvEoi {
        /// Whose.
        vcpu: VcpuId,
        /// Guest-physical address of the byte.
        address: u64,
    },
    /// Sets the preempted flag of the record at `address`.
    SetPreempted {
        /// Whose.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
    },
    /// The part's pause detection watches `vcpu` by these from its next entry on (`host.md` §3.1).
    PauseControls {
        /// Whose.
        vcpu: VcpuId,
        /// The control fields.
        controls: PauseControls,
    },
    /// The PAUSE that exited is behind `vcpu`; without this it is executed again.
    SkipPause {
        /// Whose.
        vcpu: VcpuId,
    },
    /// The guest has ended the interrupt of a [resampled](crate::Host::resample_line) pin, which counts as not asserted from
    /// now on: the device asserts it anew if it still wants.
    Resample {
        /// Whose.
        vm: VmId,
        /// Which.
        pin: u32,
    },
    /// Tracepoint (`kvm_apic_accept_irq`): the LAPIC of `vcpu` has accepted `vector`, which pends from now on. Only if
    /// [`HostConfig::traces_interrupts`](crate::HostConfig::traces_interrupts) asks for it; what hardware delivers alone is not
    /// reported.
    AcceptIrq {
        /// Whose.
        vcpu: VcpuId,
        /// Which.
        vector: u8,
    },
    /// Tracepoint: `vcpu` is in `state` from now on.
    State {
        /// Whose.
        vcpu: VcpuId,
        /// What it is now.
        state: VcpuState,
    },
    /// Tracepoint: the [voluntary](TaskConfig) task `task` is runnable and waits for `pcpu`, until a [`Run::Task`] names it or
    /// it waits elsewhere.
    TaskWaits {
        /// Who.
        task: TaskId,
        /// For what.
        pcpu: PcpuId,
    },
    /// Tracepoint: a directed yield from `from` to `to` was tried (pause exit, or kick).
    DirectedYield {
        /// Who gives its time.
        from: VcpuId,
        /// Who shall get it.
        to: VcpuId,
        /// Whether the scheduler took it up. `from` then offers its pCPU, and `to` is preferred on its own: a hint, no
        /// promise.
        done: bool,
    },
}
