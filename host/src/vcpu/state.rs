//! The parts of a vCPU's state, each with what may change it.

use crate::boundary::TaskId;

/// The vCPU's position relative to guest mode, as a sender of requests sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In host code, or its thread does not run. It checks requests before it enters.
    Outside,
    /// In guest mode. It needs an IPI to check requests.
    InGuest,
    /// In guest mode, and that IPI has been sent.
    Exiting,
}

/// Whether the guest executes, has halted, or waits to be started (KVM's `mp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MpState {
    /// The guest executes.
    #[default]
    Runnable,
    /// It executed HLT and waits.
    Halted,
    /// It has never run and waits for INIT.
    Uninitialized,
    /// INIT has reset it and it waits for SIPI.
    InitReceived,
}

/// What the vCPU's thread does when it has a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It enters the guest.
    Run,
    /// It polls for the end of a halt until this time.
    Poll {
        /// Nanoseconds since power-on.
        until: u64,
    },
    /// It sleeps in a halt, or has just been woken.
    Block,
    /// It sleeps after a pause exit, in the handler of 2.6.33.
    PauseSleep,
    /// It has ended.
    Dead,
}

/// Pending events outside the LAPIC's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PendingEvents {
    /// Non-maskable interrupts to inject: at most two, or one while another is handled.
    pub nmis: u8,
    /// A non-maskable interrupt is handled. Until IRET no other is injected.
    pub nmi_blocked: bool,
    /// A pending INIT.
    pub init: bool,
    /// A pending SIPI with its vector.
    pub sipi: Option<u8>,
    /// A vector that was injected and not delivered. It is in ISR already.
    pub undelivered: Option<u8>,
}

impl PendingEvents {
    /// Adds a non-maskable interrupt. KVM keeps as many as hardware can: one that is handled, and one behind it.
    pub(crate) fn add_nmi(&mut self) {
        let most = if self.nmi_blocked { 1 } else { 2 };
        self.nmis = (self.nmis + 1).min(most);
    }

    pub(crate) fn has_nmi(&self) -> bool {
        self.nmis > 0 && !self.nmi_blocked
    }
}

/// Work to be done before the next entry (docs/spec/host.md, "Requests").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Evaluate pending interrupts.
    pub(crate) event: bool,
    /// Update the steal-time record.
    pub(crate) steal_update: bool,
    /// Switch APIC virtualization on or off.
    pub(crate) apic_update: bool,
}

impl Requests {
    /// Returns whether there is a request.
    pub(crate) fn any(&self) -> bool {
        self.event || self.steal_update || self.apic_update
    }
}

/// The polling time of halts, and the course of the present halt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Halt {
    /// A kick is latched: the present or the next halt ends at once.
    pub(crate) pv_unhalted: bool,
    /// Polling time of the next halt. Nanoseconds.
    pub(crate) poll_ns: u64,
    /// When the present halt began.
    pub(crate) since: u64,
    /// When its polling ended without a wakeup.
    pub(crate) blocked_at: Option<u64>,
    /// The guest polls itself: the host must not.
    pub(crate) guest_polls: bool,
}

impl Halt {
    /// It has had short halts before, so it polls for as long as it may. Otherwise it does not poll.
    pub(crate) fn begin(&mut self, has_polled: bool) {
        // A halt polls no longer than is allowed when it begins.
        self.poll_ns = if has_polled { u64::MAX } else { 0 };
    }

    /// Returns the value of the MSR.
    pub(crate) fn poll_control_msr(&self) -> u64 {
        u64::from(!self.guest_polls)
    }
}

/// The steal-time record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steal {
    /// The value of the MSR.
    pub(crate) msr: u64,
    /// How much of the thread's waiting time has been reported. Nanoseconds.
    pub(crate) seen_ns: u64,
    /// The host has set the preempted flag of the record.
    pub(crate) preempted: bool,
    /// The end of the slice that the record has. Nanoseconds.
    pub(crate) slice_ends: u64,
    /// Whether the record says that the vCPU runs on after its slice.
    pub(crate) granted: bool,
}

/// The PV EOI word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PvEoi {
    /// The value of the MSR.
    pub(crate) msr: u64,
    /// The vCPU is in guest mode with the bit set. The next exit tells whether the guest has cleared it.
    pub(crate) pending: bool,
}

/// A reference to a thread that stays valid after its end: numbers are reused, generations are not (docs/spec/host.md,
/// "Threads of vCPUs").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid {
    /// The thread's number.
    pub(crate) task: TaskId,
    /// How many threads had that number before.
    pub(crate) generation: u32,
}

/// The thread of a vCPU.
#[derive(Clone, Debug)]
pub(crate) struct VcpuThread {
    /// The thread that has the vCPU in `KVM_RUN`, or had it last.
    pub(crate) task: TaskId,
    /// The thread as other vCPUs find it, possibly after its end.
    pub(crate) pid: Pid,
    /// Number of the vCPU's LAPIC timer, which is that of its first thread.
    pub(crate) timer: TaskId,
    /// The pCPU where it was last loaded.
    pub(crate) cpu: Option<u32>,
    /// It has had a pCPU before. When it gets one again, the window of its pause loops shrinks.
    pub(crate) ran: bool,
    /// It would use a pCPU if it had one.
    pub(crate) ready: bool,
    /// It lost its pCPU while it could continue.
    pub(crate) preempted: bool,
    /// The guest was at CPL 0 when it was preempted.
    pub(crate) preempted_in_kernel: bool,
    /// Its last exit was an interrupt of the host, between two of the guest's instructions.
    pub(crate) between_instructions: bool,
    /// It is to leave: the VMM unplugs the vCPU.
    pub(crate) unplugged: bool,
    /// The end of its last sleep for the VMM's throttle. Nanoseconds.
    pub(crate) throttled_until: u64,
}

/// What the pause wing knows of a vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spin {
    /// It is in the handler of a pause exit, or has yielded there.
    pub(crate) in_loop: bool,
    /// It is in that handler, and may be the target of the next directed yield all the same.
    pub(crate) dy_eligible: bool,
    /// The window of its pause loops, in the unit of the CPU.
    pub(crate) window: u32,
    /// The largest window at any pause exit.
    pub(crate) window_max: u32,
}

/// Exits that the host has asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Armed {
    /// An interrupt window: the last entry opened it.
    pub(crate) window: bool,
    /// Writes to CR8.
    pub(crate) cr8: bool,
}
