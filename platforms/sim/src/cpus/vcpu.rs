//! A vCPU as the machine sees it: where it is, how far its flow has come, and what it waits for.

use holdfast_host::{VcpuState, VmId};
use holdfast_machine::{LineId, PauseDetector, Picos, Time};

use crate::books::blame::Mark;
use crate::books::cause::Cause;
use crate::books::ledger::{Ledger, Owed, Stretch};
use crate::flows::context::Saved;
use crate::memory::park::{Parked, Resumption};
use crate::memory::tlb::Tlb;

/// Whose time the guest says it spends (its own word for it: `guest::Mode`).
pub use holdfast_guest::Mode;

/// What an interrupt's handler must not disturb.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    remaining: Picos,
    owed: Owed,
    contending: Option<LineId>,
    ipi_target: Option<(u32, u64)>,
    mode: Mode,
    waiting: bool,
}

/// A vCPU.
#[derive(Debug)]
pub struct Vcpu {
    /// Its VM, and its number there (its APIC ID).
    pub vm: VmId,
    /// Its number in its VM, which is its APIC ID.
    pub number: u32,
    /// The pCPU whose guest it is, while it is one.
    pub pcpu: Option<u32>,
    /// The pCPU that it ran on last.
    pub last_pcpu: u32,
    /// What the host says of it.
    pub state: VcpuState,

    /// It is a CPU of the kernel on the machine itself (`native.rs`), not of a guest.
    pub native: bool,

    /// The flow that continues when its turn comes.
    pub flow: Saved,
    /// Stack pointers of that flow stay above this.
    pub stack_limit: usize,
    /// Up to when the flow has come: its own clock, ahead of the machine's.
    pub clock: Time,
    /// While it is out of its guest: what it had still to live through when it left.
    pub remaining: Picos,
    /// Set while its flow waits in a skipped spin.
    pub parked: Option<Parked>,
    /// What its flow must know when it continues after that.
    pub resumption: Option<Resumption>,
    /// Its flow is inside a wait on a word: loads are part of the wait.
    pub waiting: bool,

    /// RFLAGS.IF.
    pub irqs_enabled: bool,
    /// CR8.
    pub cr8: u8,
    /// It has executed something since its last INIT.
    pub begun: bool,
    /// The host wants to know when interrupts can be taken again.
    pub window: bool,
    /// A vector to take as soon as the flow continues.
    pub inject: Option<u8>,
    /// The last hypercall, MSR or LAPIC read's answer.
    pub reply: u64,
    /// The last CPUID's answer.
    pub reply_cpuid: [u32; 4],
    /// The last instruction that exited gets a general-protection fault.
    pub fault: bool,
    /// Where the host has set a bit that the next exit takes back.
    pub pv_eoi: Option<u64>,
    /// A planted fault: the record whose state byte is cleared late.
    pub torn: Option<u64>,
    /// What its TLB holds.
    pub tlb: Option<Tlb>,
    /// The pause-loop detector.
    pub pauses: PauseDetector,
    /// The PAUSE that exited is not executed again.
    pub skip_pause: bool,

    /// Whose time the flow spends.
    pub mode: Mode,
    /// The lock that it waits for.
    pub contending: Option<LineId>,
    /// How many times it has begun to wait for one.
    pub contentions: u64,
    /// The locks that it holds, in the order of acquisition.
    pub held: Vec<LineId>,
    /// The vCPU whose answer it waits for, with that one's time off its pCPU when last looked at.
    pub ipi_target: Option<(u32, u64)>,
    /// The last reading of the clock of the lock that it waits for.
    pub mark: Option<Mark>,
    /// All its time.
    pub ledger: Ledger,
    /// What its flow has announced to spend.
    pub owed: Owed,
    /// Why it is out of its guest.
    pub out_cause: Cause,
    /// Picoseconds that it has been off its pCPU.
    pub off_time: u64,
    /// Since when it is off its pCPU, if it is.
    pub off_since: Option<Time>,
}

impl Vcpu {
    /// A vCPU before power-on.
    pub fn new(vm: VmId, number: u32) -> Vcpu {
        Vcpu {
            vm,
            number,
            pcpu: None,
            last_pcpu: u32::MAX,
            state: VcpuState::Woken,
            native: false,
            flow: Saved::NONE,
            stack_limit: 0,
            clock: Time(0),
            remaining: Picos::ZERO,
            parked: None,
            resumption: None,
            waiting: false,
            irqs_enabled: false,
            cr8: 0,
            begun: false,
            window: false,
            inject: None,
            reply: 0,
            reply_cpuid: [0; 4],
            fault: false,
            pv_eoi: None,
            torn: None,
            tlb: None,
            pauses: PauseDetector::default(),
            skip_pause: false,
            mode: Mode::Kernel,
            contending: None,
            contentions: 0,
            held: Vec::with_capacity(8),
            ipi_target: None,
            mark: None,
            ledger: Ledger::new(),
            owed: Owed::NOTHING,
            out_cause: Cause::WakeLatency,
            off_time: 0,
            off_since: Some(Time(0)),
        }
    }

    /// CPU `number` of the kernel on the machine itself, which is `vm`.
    pub fn of_native(vm: VmId, number: u32) -> Vcpu {
        Vcpu {
            native: true,
            state: crate::guests::native::STATE,
            last_pcpu: number,
            out_cause: Cause::Idle,
            off_since: None,
            ..Vcpu::new(vm, number)
        }
    }

    /// Whether it has a pCPU: in guest mode, or its exit is handled there.
    #[inline]
    pub fn is_running(&self) -> bool {
        matches!(self.state, VcpuState::InGuest | VcpuState::HandlingExit)
    }

    /// May not run: the quota of its task group is spent.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.state == VcpuState::Throttled
    }

    /// What computing means for it right now.
    #[inline]
    pub fn work(&self) -> Cause {
        if !self.held.is_empty() {
            Cause::CriticalSection
        } else if self.mode == Mode::Idle {
            Cause::Idle
        } else {
            Cause::Useful
        }
    }

    /// What waiting means for it right now, unless for a lock.
    #[inline]
    pub fn wait(&self) -> Cause {
        if self.ipi_target.is_some() {
            Cause::IpiRunningTarget
        } else {
            self.work()
        }
    }

    /// Announces that the flow spends `span` on `cause`, in the mode that it is in; false if there is no room.
    #[inline]
    #[must_use]
    pub fn owe(&mut self, cause: Cause, span: Picos) -> bool {
        let user = self.mode == Mode::User;
        self.owed.push(Stretch { cause, user, span })
    }

    /// Announces `span` of waiting, which its clock already counts. A flow that waits owes little: there is room.
    pub fn owe_wait(&mut self, span: Picos) {
        if self.contending.is_none() {
            let cause = self.wait();
            assert!(
                self.owe(cause, span),
                "a waiting flow owes its last load and PAUSE only"
            );
        }
    }

    /// For how long, since the last look, the vCPU whose answer it waits for was off its pCPU: that has been off for `off`
    /// picoseconds in all.
    pub fn target_was_off(&mut self, off: u64) -> Picos {
        let Some((_, before)) = &mut self.ipi_target else {
            return Picos::ZERO;
        };
        Picos(off - std::mem::replace(before, off))
    }

    /// Picoseconds off its pCPU up to `now`.
    pub fn off_time_at(&self, now: Time) -> u64 {
        self.off_time + self.off_since.map_or(0, |since| now.since(since).0)
    }

    /// Sets the flow's affairs aside for an interrupt's handler, which starts at `now`.
    pub fn set_aside(&mut self, now: Time) -> Interrupted {
        let aside = Interrupted {
            remaining: self.clock.since(now),
            owed: self.owed,
            contending: self.contending.take(),
            ipi_target: self.ipi_target.take(),
            mode: self.mode,
            waiting: std::mem::take(&mut self.waiting),
        };
        self.owed.clear();
        self.clock = now;
        self.irqs_enabled = false;
        aside
    }

    /// Takes them up again: on the vCPU where the handler ended, which need not be the one where it began.
    pub fn take_up(&mut self, aside: Interrupted) {
        self.clock += aside.remaining;
        self.owed = aside.owed;
        self.contending = aside.contending;
        self.ipi_target = aside.ipi_target;
        self.mode = aside.mode;
        self.waiting = aside.waiting;
    }
}
