//! What the host wants done.

use super::{Cost, Nanos, PcpuId, TaskId, VcpuId, VmId};
#[cfg(doc)]
use super::{Event, Exit, GuestState, HostInterrupt};
#[cfg(doc)]
use crate::config::TaskConfig;
use crate::pause::config::PauseControls;

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
    /// Busily waits for a halted vCPU's wakeup (halt polling); ends by an interrupt or a further command.
    Poll(VcpuId),
    /// Nothing to run.
    Idle,
}

/// A vCPU's life (docs/spec/host.md, "vCPU states").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VcpuState {
    /// In guest mode.
    InGuest,
    /// On its pCPU, the host handles its exit.
    HandlingExit,
    /// Halted, its pCPU polls for its wakeup.
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

/// What the host wants done. For each pCPU, costs add up until the next [`Command::Run`] for it, which starts after
/// them.
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
    /// Whether writes of `vcpu` to CR8 exit ([`Exit::WriteCr8`]) from its next entry on: only while its task priority
    /// holds a pending interrupt back.
    InterceptCr8 {
        /// Whose.
        vcpu: VcpuId,
        /// Whether they do; not so at first.
        on: bool,
    },
    /// `vcpu` is reset as by INIT: whatever it did is gone, interrupts are masked. If it is no bootstrap processor, it
    /// waits for [`Command::Startup`].
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
    /// `from` sends `to` an interrupt that says: something is posted. In guest mode hardware takes it without an exit
    /// if `vector` is the notification vector, elsewhere it is nothing.
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
    /// Adds to the steal time of the record at `address`, under its version protocol, and exchanges `preempted` with 0
    /// in one step.
    StealTime {
        /// Where a flush takes its time.
        pcpu: PcpuId,
        /// Whose.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
        /// Nanoseconds to add.
        steal: u64,
        /// If the exchange finds [`FLUSH_TLB`](holdfast_abi::StealTime::FLUSH_TLB), the part flushes the guest's
        /// translations of this vCPU before it enters.
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
    /// The part's pause detection watches `vcpu` by these from its next entry on
    /// (docs/spec/host.md, "Pause detection").
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
    /// The guest has ended the interrupt of a [resampled](crate::Host::resample_line) pin, which counts as not asserted
    /// from now on: the device asserts it again if it still wants.
    Resample {
        /// Whose.
        vm: VmId,
        /// Which.
        pin: u32,
    },
    /// Tracepoint (`kvm_apic_accept_irq`): the LAPIC of `vcpu` has accepted `vector`, which pends from now on. Only if
    /// [`HostConfig::traces_interrupts`](crate::HostConfig::traces_interrupts) asks for it; what hardware delivers
    /// alone is not reported.
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
    /// Tracepoint: the [voluntary](TaskConfig) task `task` is runnable and waits for `pcpu`, until a [`Run::Task`]
    /// names it or it waits elsewhere.
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
