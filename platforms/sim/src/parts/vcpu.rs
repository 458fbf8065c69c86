//! A vCPU as the machine sees it: where it is, how far its flow has come, and what its guest has announced.

use holdfast_host::{PcpuId, VcpuId, VcpuState, VmId};
use holdfast_machine::{LineId, PauseDetector, Picos, Time};

use crate::core::cause::Cause;
use crate::core::pending::{Kind, PendingTime, Stretch};
use crate::memory::park::{Parked, Resumption};
use crate::memory::tlb::Tlb;
use crate::parts::nesting::Nesting;
use crate::stacks::context::Saved;

/// The mode in which the guest says that it executes.
pub use holdfast_guest::Mode;

/// The state of a CPU of the bare-metal kernel: it always has its pCPU.
const NATIVE_STATE: VcpuState = VcpuState::InGuest;

/// What an interrupt's handler must not disturb.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    remaining: Picos,
    pending: PendingTime,
    contending: Option<LineId>,
    ipi_target: Option<VcpuId>,
    mode: Mode,
    waiting: bool,
}

/// The flow of guest code that a vCPU executes.
#[derive(Debug)]
#[repr(C)]
pub struct FlowState {
    /// Where the flow continues when its turn comes.
    pub saved: Saved,
    /// The flow's stack pointer stays above this address.
    pub stack_limit: usize,
    /// The flow's own clock, ahead of the machine's.
    pub clock: Time,
    /// Time that the flow has announced and not used yet.
    pub pending: PendingTime,
    /// While the vCPU is out of its guest: how far the clock was ahead when it left.
    pub remaining: Picos,
    /// The flow has executed something since the vCPU's last INIT.
    pub has_begun: bool,
}

/// The way of user code to memory.
#[derive(Debug, Default)]
pub struct UserMemory {
    /// What the TLB holds.
    pub tlb: Tlb,
    /// Entries in the hardware's log of written pages.
    pub logged: u32,
    /// Time by which a microsecond of user code takes longer on each socket because its memory is on others.
    pub delays: Box<[Picos]>,
    /// The same on the pCPU on which the vCPU is.
    pub delay: Picos,
}

/// Waiting: on a word, in pause loops, and for a pCPU.
#[derive(Debug, Default)]
pub struct SpinState {
    /// The skipped spin in which the flow waits.
    pub parked: Option<Parked>,
    /// What the flow must know when it continues after a skipped spin.
    pub resumption: Option<Resumption>,
    /// The flow is inside a wait on a word: its loads are part of the wait.
    pub waiting: bool,
    /// The pause-loop detector.
    pub pauses: PauseDetector,
    /// The PAUSE that exited is not executed again.
    pub skip_pause: bool,
    /// It is in MWAIT since then, and its pCPU sleeps.
    pub asleep: Option<Time>,
    /// Since when it waits for a pCPU after a sleep, if that is noted.
    pub woken: Option<Time>,
}

/// Registers and requests around interrupts.
#[derive(Debug, Default)]
pub struct InterruptState {
    /// The flag RFLAGS.IF.
    pub enabled: bool,
    /// A vector that the flow takes as soon as it continues.
    pub vector: Option<u8>,
    /// A non-maskable interrupt that the flow takes as soon as it continues.
    pub nmi: bool,
    /// The host wants an exit as soon as interrupts can be taken.
    pub window: bool,
    /// CR8, the task priority.
    pub cr8: u8,
    /// Address of the PV EOI word whose bit the host has set, which the next exit takes back.
    pub pv_eoi: Option<u64>,
}

impl InterruptState {
    /// Whether the flow takes an interrupt as soon as it continues.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.vector.is_some() || self.nmi
    }
}

/// The host's answers to the last exit.
#[derive(Debug, Default)]
pub struct Replies {
    /// Result of a hypercall, an RDMSR or a LAPIC read.
    pub value: u64,
    /// Result of a CPUID.
    pub cpuid: [u32; 4],
    /// The instruction that exited gets a general-protection fault.
    pub fault: bool,
    /// Address of the steal-time record that the host has updated last, which has the guest's word.
    pub record: Option<u64>,
}

/// What the guest has announced of its own doing.
#[derive(Debug)]
#[repr(C)]
pub struct Announced {
    /// The lock that it waits for.
    pub contending: Option<LineId>,
    /// The locks that it holds, in the order of acquisition.
    pub held: Vec<LineId>,
    /// The vCPU whose acknowledgement of an IPI it waits for.
    pub ipi_target: Option<VcpuId>,
    /// The mode in which it executes.
    pub mode: Mode,
    /// Number of waits for locks that have begun.
    pub contentions: u64,
}

impl Announced {
    /// The cause to which computing counts at present.
    #[inline]
    pub fn work_cause(&self) -> Cause {
        if !self.held.is_empty() {
            Cause::CriticalSection
        } else if self.mode == Mode::Idle {
            Cause::Idle
        } else {
            Cause::Useful
        }
    }

    /// The cause to which waiting counts at present, unless for a lock.
    #[inline]
    pub fn wait_cause(&self) -> Cause {
        if self.ipi_target.is_some() {
            Cause::IpiRunningTarget
        } else {
            self.work_cause()
        }
    }
}

/// A vCPU.
///
/// **Few lines at each turn**: the vCPUs of a large machine do not fit into a first-level cache, and two turns in
/// sequence are seldom of the same flow. So the fields that each turn touches come first, in the order of use. A flow's
/// short pending time shares a cache line with its clock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Vcpu {
    /// Its flow of guest code.
    pub flow: FlowState,
    /// The pCPU on which it is in guest mode, if it is.
    pub pcpu: Option<PcpuId>,
    /// The pCPU on which it ran last; `u32::MAX` before its first entry.
    pub last_pcpu: PcpuId,
    /// It is a CPU of the bare-metal kernel (`tasks/native.rs`), not of a guest.
    pub native: bool,
    /// Its state according to the host.
    pub state: VcpuState,
    /// What the guest has announced of its own doing.
    pub announced: Announced,
    /// Its VM.
    pub vm: VmId,
    /// Its number in its VM, which is its APIC ID.
    pub number: u32,
    /// Registers and requests around interrupts.
    pub interrupts: InterruptState,
    /// Its user code's way to memory.
    pub memory: UserMemory,
    /// Waiting on a word, and pause loops.
    pub spin: SpinState,
    /// The host's answers to the last exit.
    pub replies: Replies,
    /// Its part in nesting.
    nesting: Nesting,
}

impl Vcpu {
    /// A vCPU before power-on.
    pub fn new(vm: VmId, number: u32) -> Vcpu {
        Vcpu {
            vm,
            number,
            native: false,
            nesting: Nesting::default(),
            pcpu: None,
            last_pcpu: PcpuId(u32::MAX),
            state: VcpuState::Woken,
            flow: FlowState {
                saved: Saved::NONE,
                stack_limit: 0,
                clock: Time(0),
                remaining: Picos::ZERO,
                pending: PendingTime::NONE,
                has_begun: false,
            },
            spin: SpinState::default(),
            interrupts: InterruptState::default(),
            replies: Replies::default(),
            memory: UserMemory::default(),
            announced: Announced {
                mode: Mode::Kernel,
                contending: None,
                contentions: 0,
                held: Vec::with_capacity(8),
                ipi_target: None,
            },
        }
    }

    /// CPU `number` of the bare-metal kernel, whose number among the guests is `vm`.
    pub fn of_native(vm: VmId, number: u32) -> Vcpu {
        Vcpu {
            native: true,
            state: NATIVE_STATE,
            last_pcpu: PcpuId(number),
            ..Vcpu::new(vm, number)
        }
    }

    /// Its part in nesting.
    pub fn nesting(&self) -> &Nesting {
        &self.nesting
    }

    /// As [`Vcpu::nesting`], to change it.
    pub fn nesting_mut(&mut self) -> &mut Nesting {
        &mut self.nesting
    }

    /// Whether no hardware of the machine delivers its interrupts: it is no vCPU of the machine's host.
    #[inline]
    pub fn is_without_apic(&self) -> bool {
        self.native || self.nesting.host.is_some()
    }

    /// Whether it has a pCPU: it is in guest mode, or its exit is handled there.
    #[inline]
    pub fn is_running(&self) -> bool {
        is_running(self.state)
    }

    /// Whether it may not run because the quota of its task group is spent.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.state == VcpuState::Throttled
    }

    /// Whether the guest executes kernel code, which pause-loop exiting observes.
    #[inline]
    pub fn is_in_kernel(&self) -> bool {
        self.announced.mode != Mode::User
    }

    /// Adds `span` for `cause` to the flow's pending time, in its present mode. Returns `false` if there is no room.
    #[inline]
    #[must_use]
    pub fn announce(&mut self, cause: Cause, span: Picos) -> bool {
        let user = self.announced.mode == Mode::User;
        let kind = Kind { cause, user };
        self.flow.pending.push(Stretch { kind, span })
    }

    /// Moves the flow's clock by `span`, which is for `cause`. Returns `false`, and does nothing, if there is no room
    /// in the pending time. A wait for a lock needs none: the lock's own clock divides it.
    #[inline]
    #[must_use]
    pub fn spend(&mut self, cause: Cause, span: Picos) -> bool {
        let fits = self.announced.contending.is_some() || self.announce(cause, span);
        if fits {
            self.flow.clock += span;
        }
        fits
    }

    /// Adds `span` of waiting to the pending time; the flow's clock has it already. There is room: a flow that waits
    /// has only its last load and PAUSE pending.
    pub fn announce_wait(&mut self, span: Picos) {
        if self.announced.contending.is_none() {
            let cause = self.announced.wait_cause();
            assert!(
                self.announce(cause, span),
                "a waiting flow has more pending time than its last load and PAUSE"
            );
        }
    }

    /// Sets the flow's state aside for an interrupt's handler, which starts at `now`.
    pub fn set_aside(&mut self, now: Time) -> Interrupted {
        let aside = Interrupted {
            remaining: self.flow.clock.since(now),
            pending: self.flow.pending,
            contending: self.announced.contending.take(),
            ipi_target: self.announced.ipi_target.take(),
            mode: self.announced.mode,
            waiting: std::mem::take(&mut self.spin.waiting),
        };
        self.flow.pending.clear();
        self.flow.clock = now;
        self.interrupts.enabled = false;
        aside
    }

    /// Restores that state on the vCPU on which the handler ended, which need not be the vCPU on which it began.
    pub fn take_up(&mut self, aside: Interrupted) {
        self.flow.clock += aside.remaining;
        self.flow.pending = aside.pending;
        self.announced.contending = aside.contending;
        self.announced.ipi_target = aside.ipi_target;
        self.announced.mode = aside.mode;
        self.spin.waiting = aside.waiting;
    }

    /// Resets it as INIT does, outside of its guest. Its TLB must be empty, and a new flow be made. Returns the lock
    /// that it waited for.
    pub fn reset(&mut self) -> Option<LineId> {
        self.flow.remaining = Picos::ZERO;
        self.flow.pending.clear();
        self.flow.has_begun = false;
        self.spin.resumption = None;
        self.spin.waiting = false;
        self.spin.skip_pause = false;
        self.spin.asleep = None;
        self.interrupts = InterruptState::default();
        self.replies = Replies::default();
        self.announced.mode = Mode::Kernel;
        self.announced.held.clear();
        self.announced.ipi_target = None;
        self.announced.contending.take()
    }

    /// Enters guest mode on `pcpu` at `now`. Returns the time of the flow's next step.
    pub fn enter(&mut self, pcpu: PcpuId, now: Time) -> Time {
        self.pcpu = Some(pcpu);
        self.flow.clock = now + self.flow.remaining;
        self.flow.remaining = Picos::ZERO;
        self.next_step(now)
    }

    /// The time of the flow's next step: `now` if it is to take an interrupt.
    pub fn next_step(&self, now: Time) -> Time {
        if self.interrupts.is_due() { now } else { self.flow.clock }
    }
}

/// Whether a vCPU in `state` has a pCPU.
#[inline]
pub fn is_running(state: VcpuState) -> bool {
    matches!(
        state,
        VcpuState::InGuest | VcpuState::HandlingExit | VcpuState::Userspace
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of};

    const LINE_BYTES: usize = 64;

    #[test]
    fn a_turn_touches_three_cache_lines() {
        assert_eq!(align_of::<Vcpu>() % LINE_BYTES, 0);
        let line_of = |offset: usize| offset / LINE_BYTES;
        // The flow with its clock and the first two stretches of pending time.
        let second_stretch = offset_of!(Vcpu, flow) + offset_of!(FlowState, pending) + PendingTime::BYTES_OF_TWO;
        assert_eq!(line_of(second_stretch - 1), 0);
        // What it has announced, up to the mode.
        let announced = offset_of!(Vcpu, announced);
        let mode = announced + offset_of!(Announced, mode);
        assert_eq!((line_of(offset_of!(Vcpu, pcpu)), line_of(mode)), (2, 2));
        // Whether an interrupt is due.
        let interrupts = offset_of!(Vcpu, interrupts);
        assert_eq!(
            line_of(interrupts),
            line_of(interrupts + size_of::<InterruptState>() - 1)
        );
    }
}
