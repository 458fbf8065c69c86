//! The commands of the host: its output.

use super::{Cost, Nanos, PcpuId, TaskId, VcpuId, VmId};
#[cfg(doc)]
use super::{Event, Exit, GuestState, HostInterrupt};
#[cfg(doc)]
use crate::config::{HostConfig, TaskConfig};
use crate::pause::config::PauseControls;

/// The activity of a pCPU from now on.
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
    /// Runs a host task that is not a vCPU.
    Task(TaskId),
    /// Polls for the wakeup of a halted vCPU (halt polling), until an interrupt or a further command.
    Poll(VcpuId),
    /// The pCPU is idle.
    Idle,
}

/// The state of a vCPU (docs/spec/host.md, "vCPU states").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VcpuState {
    /// In guest mode.
    InGuest,
    /// On its pCPU, which executes the host's exit handler.
    HandlingExit,
    /// Halted; its pCPU polls for its wakeup.
    Polling,
    /// Ready to run; another thread has its pCPU.
    Preempted,
    /// Halted; its thread sleeps.
    Blocked,
    /// Woken, and not on a pCPU yet.
    Woken,
    /// Its thread sleeps after a pause exit, in the handler of 2.6.33 to 2.6.38.
    PauseSleep,
    /// Out of `KVM_RUN`, in the user space of the VMM. The vCPU does not account for what its thread does there.
    Userspace,
    /// Powered off or crashed.
    Dead,
    /// Ready to run; the quota of its task group is spent.
    Throttled,
}

/// A command of the host. Costs of a pCPU add up until its next [`Command::Run`], which starts after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `pcpu` spends `cost`, `count` times, before its next `Run`.
    Charge {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The kind of work.
        cost: Cost,
        /// How many times.
        count: u32,
    },
    /// `pcpu` does this from now on, after the work that it was charged.
    Run {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The new activity.
        run: Run,
    },
    /// Sets the one timer of `pcpu` and replaces the earlier setting. `None` stops the timer.
    Timer {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The time at which [`HostInterrupt::Timer`] shall come, never before the present.
        at: Option<Nanos>,
    },
    /// `from` sends `to` a reschedule IPI.
    Ipi {
        /// The sending pCPU.
        from: PcpuId,
        /// The receiving pCPU.
        to: PcpuId,
    },
    /// `vcpu` takes a non-maskable interrupt with its next entry. Its IRET is to be reported ([`Exit::Iret`]).
    InjectNmi {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// CR8 of `vcpu` is `value` from its next entry on. The guest changed its task priority in another way.
    SetCr8 {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Bits 3:0.
        value: u8,
    },
    /// Sets whether writes of `vcpu` to CR8 exit ([`Exit::WriteCr8`]) from its next entry on. They do only while its
    /// task priority holds back a pending interrupt.
    InterceptCr8 {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// `true`: they exit. Initially they do not.
        on: bool,
    },
    /// `vcpu` is reset as by INIT: its execution is abandoned, and interrupts are masked. Unless it is the bootstrap
    /// processor, it waits for [`Command::Startup`].
    Init {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// `vcpu`, which INIT has reset, begins to execute in real mode at the page `vector`.
    Startup {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Bits 19:12 of the physical address.
        vector: u8,
    },
    /// `from` notifies `to` of posted interrupts. In guest mode, hardware takes the notification vector without an
    /// exit. Outside guest mode it has no effect.
    Notify {
        /// The sending pCPU.
        from: PcpuId,
        /// The receiving pCPU.
        to: PcpuId,
        /// The vector sent.
        vector: u8,
    },
    /// Rings the AVIC doorbell of `to`: a vCPU in guest mode there evaluates its IRR. Otherwise it has no effect.
    Doorbell {
        /// The receiving pCPU.
        to: PcpuId,
    },
    /// The result of a hypercall (RAX), an MSR read (EDX:EAX) or a LAPIC read.
    Reply {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// The value read.
        value: u64,
    },
    /// The result of CPUID.
    ReplyCpuid {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// EAX, EBX, ECX, EDX.
        value: [u32; 4],
    },
    /// The guest takes a general-protection fault for the instruction that exited.
    Fault {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// The guest takes an invalid-opcode fault for the instruction that exited.
    InvalidOpcode {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// `vcpu`, which executes a guest of its own ([`Exit::Vmrun`]), continues behind its VMRUN with its next entry,
    /// with interrupts masked. If the step handles an exit of that guest, VMRUN returns that exit, otherwise the exit
    /// for an interrupt.
    LeaveNested {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// Adds to the steal time of the record at `address`, under its version protocol, and atomically exchanges
    /// `preempted` with 0.
    StealTime {
        /// The pCPU that spends the time of a flush.
        pcpu: PcpuId,
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
        /// Nanoseconds to add.
        steal: u64,
        /// If the exchange finds [`FLUSH_TLB`](holdfast_abi::StealTime::FLUSH_TLB), the CPU flushes the guest's
        /// translations of this vCPU before it enters.
        flush: bool,
    },
    /// Sets bit 0 of the byte at `address`, which is in the guest's memory. The next exit tests and clears it
    /// ([`GuestState::pv_eoi`]).
    PvEoi {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Guest-physical address of the byte.
        address: u64,
    },
    /// Writes into the record at `address` when the slice of `vcpu` ends.
    SliceEnd {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
        /// The end on the host's clock. Nanoseconds. 0: no other thread waits.
        ends: u64,
    },
    /// Writes into the record at `address` whether `vcpu` runs on after its slice for what it is in the midst of.
    Grant {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
        /// Whether it does.
        granted: bool,
    },
    /// Sets the preempted flag of the record at `address`.
    SetPreempted {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// Guest-physical address of the record.
        address: u64,
    },
    /// Sets how the CPU's pause detection watches `vcpu` from its next entry on (docs/spec/host.md, "Pause detection").
    PauseControls {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// The control fields.
        controls: PauseControls,
    },
    /// Skips the PAUSE of `vcpu` that exited. Without this command it is executed again.
    SkipPause {
        /// The vCPU concerned.
        vcpu: VcpuId,
    },
    /// Tracepoint (`kvm_apic_accept_irq`): the LAPIC of `vcpu` has accepted `vector`, which is pending from now on.
    /// Only sent if [`HostConfig::traces_interrupts`](crate::HostConfig::traces_interrupts) is set. Interrupts that
    /// hardware delivers alone are not reported.
    AcceptIrq {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// The accepted vector.
        vector: u8,
    },
    /// Tracepoint: the state of `vcpu` changes to `state`.
    State {
        /// The vCPU concerned.
        vcpu: VcpuId,
        /// The new state.
        state: VcpuState,
    },
    /// Tracepoint: the [voluntary](TaskConfig) task `task` is runnable and waits for `pcpu`, until a [`Run::Task`]
    /// names it or it waits for another pCPU.
    TaskWaits {
        /// The waiting task.
        task: TaskId,
        /// The pCPU for which it waits.
        pcpu: PcpuId,
    },
    /// `vm`, which the VMM has removed, has ended: no thread executes it any more, and its memory may be freed. Its ids
    /// may be given to another VM.
    VmEnded {
        /// The VM that has ended.
        vm: VmId,
    },
    /// Tracepoint: a directed yield from `from` to `to` was tried, by a pause exit or a kick.
    DirectedYield {
        /// The vCPU that gives up its time.
        from: VcpuId,
        /// The vCPU that shall get it.
        to: VcpuId,
        /// `true`: the scheduler accepted it. `from` then offers its pCPU, and `to` is preferred on its own. This is a
        /// hint.
        done: bool,
    },
}
