//! What a recording says about vCPUs, one value for each step.

use crate::event::{Name, Tid};
use crate::hosts::names::Role;

/// A vCPU of the recording: the place in the order in which they were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VcpuIndex(pub u32);

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It executes its guest.
    Guest,
    /// Its thread has a pCPU, and handles an exit or is about to enter the guest.
    Host,
    /// Its thread has a pCPU. Whether it is in the guest is not recorded.
    Running,
    /// It is halted, and its thread polls for an event instead of giving up the pCPU.
    Polling,
    /// It could run, and has no pCPU: preempted, or woken and not yet running.
    Ready,
    /// It is halted, and its thread sleeps.
    Halted,
    /// Its thread sleeps for another reason, or for one that is not recorded.
    Asleep,
    /// Events are missing, or contradict each other.
    Unknown,
}

impl State {
    /// All states.
    pub const ALL: [State; 8] = [
        State::Guest,
        State::Host,
        State::Running,
        State::Polling,
        State::Ready,
        State::Halted,
        State::Asleep,
        State::Unknown,
    ];

    /// The name of the state in results.
    pub fn name(self) -> &'static str {
        [
            "guest", "host", "running", "polling", "ready", "halted", "asleep", "unknown",
        ][self as usize]
    }

    /// Returns whether a vCPU in this state has a pCPU.
    pub fn has_pcpu(self) -> bool {
        matches!(self, State::Guest | State::Host | State::Running | State::Polling)
    }
}

/// What has a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Occupant {
    /// No thread.
    Idle,
    /// A vCPU.
    Vcpu(VcpuIndex),
    /// Any other thread.
    Thread {
        /// What it does, by its name.
        role: Role,
        /// Its process, if known.
        process: Option<Tid>,
        /// Its name.
        name: Name,
    },
    /// Not known.
    Unknown,
}

/// By what a wakeup came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// The waker, a vCPU, made a kick hypercall.
    Kick,
    /// The waker, a vCPU, sent an IPI.
    Ipi,
    /// An interrupt that came to the pCPU of the thread: a timer, a device.
    Interrupt,
    /// The thread did it itself.
    Thread,
}

/// What woke a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Waker {
    /// The thread that ran on the CPU of the wakeup.
    pub thread: Tid,
    /// What that thread is.
    pub who: Occupant,
    /// By what the wakeup came about.
    pub how: How,
}

/// A step of a vCPU or a pCPU. Times are in ns on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'s> {
    /// A vCPU was found, or more was learned about it.
    Known {
        /// The vCPU. The next new one has the next index.
        vcpu: VcpuIndex,
        /// Its thread.
        thread: Tid,
        /// The name of its thread.
        name: Name,
        /// Its number in its VM.
        number: Option<u32>,
        /// The process of its thread.
        process: Option<Tid>,
    },
    /// The first event of the thread of a vCPU since it is known as one: its spans begin here.
    Seen {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
    },
    /// A vCPU was in one state. The spans of a vCPU come in the order of time, at most one halt late.
    Was {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// From this time.
        from: u64,
        /// To this time.
        to: u64,
        /// The state.
        state: State,
        /// The pCPU that it had or waited for, by Linux's number.
        cpu: Option<u32>,
    },
    /// A vCPU was ready from `from` to `to`: the sum of [`State::Ready`] spans is that of these waits.
    Waited {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// From this time.
        from: u64,
        /// To this time.
        to: u64,
        /// What had the pCPU that it waited for, each with its time in ns. They sum to the wait.
        behind: &'s [(Occupant, u64)],
        /// What woke it; `None` if it was preempted.
        waker: Option<Waker>,
        /// For how long of it a vCPU stayed in its guest on that pCPU, and gave it up at its first exit.
        until_exit: u64,
        /// The wait ended with a pCPU. `false`: the recording or the thread ended.
        ran: bool,
    },
    /// A vCPU left its guest.
    Exited {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
        /// The hardware's code of the reason.
        reason: u32,
        /// 1: Intel's VMX. 2: AMD's SVM. 0: not known.
        isa: u32,
        /// For how long it had been in the guest, in ns, if that is recorded.
        guest: Option<u64>,
    },
    /// A vCPU made a kick hypercall for the vCPU with this APIC ID of its VM.
    Kicked {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
        /// The APIC ID of the target.
        target: u64,
    },
    /// A vCPU sent an IPI that the host saw.
    Ipi {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
        /// Low half of the interrupt command register.
        icr_low: u32,
        /// Destination, as the guest wrote it.
        destination: u32,
    },
    /// A halt ended.
    HaltEnded {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
        /// For how long it polled, in ns.
        polled: u64,
        /// An event came while it polled: no sleep, no wakeup.
        won: bool,
        /// For how long it was halted, in ns, as the host says.
        ns: u64,
        /// What woke it, if it slept and that was seen.
        waker: Option<Waker>,
    },
    /// A pCPU had one occupant.
    Had {
        /// The pCPU, by Linux's number.
        cpu: u32,
        /// From this time.
        from: u64,
        /// To this time.
        to: u64,
        /// What had it.
        occupant: Occupant,
    },
    /// The thread of a vCPU ended.
    Gone {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The time.
        at: u64,
    },
}

/// Takes steps.
pub trait Sink {
    /// Takes one step.
    fn step(&mut self, step: &Step<'_>);
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    fn step(&mut self, step: &Step<'_>) {
        self.0.step(step);
        self.1.step(step);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn step(&mut self, step: &Step<'_>) {
        (**self).step(step);
    }
}
