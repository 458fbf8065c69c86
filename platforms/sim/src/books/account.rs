//! The account of one vCPU: its ledger, and what is needed to divide its waits by cause.

use holdfast_host::VcpuState;
use holdfast_machine::{Picos, Time};

use crate::books::blame::{BlameClock, CULPRITS, Mark, Reading};
use crate::books::gaps::Gaps;
use crate::books::ledger::Ledger;
use crate::core::cause::Cause;
use crate::parts::vcpu::{Vcpu, is_running};

/// The cause of a spin behind each culprit.
const SPIN_CAUSES: [Cause; CULPRITS] = [
    Cause::SpinRunningHolder,
    Cause::SpinPreemptedHolder,
    Cause::SpinPreemptedWaiter,
    Cause::CacheTransfer,
    Cause::SpinThrottledHolder,
    Cause::SpinThrottledWaiter,
];

/// The account of one vCPU.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Account {
    /// All its time.
    pub ledger: Ledger,
    /// The cause to which its time counts while it is out of its guest.
    pub out_cause: Cause,
    /// The last reading of the clock of the lock that it waits for.
    mark: Option<Mark>,
    /// Picoseconds without a pCPU, up to `off_since`.
    off_time: u64,
    /// Since when it has no pCPU, if it has none.
    off_since: Option<Time>,
    /// The off time of the vCPU whose acknowledgement it waits for, when last read.
    target_off: u64,
    /// Its waits for a pCPU and the times between its timer's ticks.
    pub gaps: Gaps,
}

impl Account {
    /// The account of `vcpu` at power-on.
    pub fn new(vcpu: &Vcpu) -> Account {
        Account {
            ledger: Ledger::default(),
            out_cause: if vcpu.native { Cause::Idle } else { Cause::WakeLatency },
            mark: None,
            off_time: 0,
            off_since: (!vcpu.native).then_some(Time(0)),
            target_off: 0,
            gaps: Gaps::default(),
        }
    }

    /// Enters all time up to `now`, which the vCPU spent out of its guest.
    #[inline]
    pub fn enter_out(&mut self, now: Time) {
        self.ledger.enter_until(self.out_cause, now);
    }

    /// Picoseconds without a pCPU up to `now`.
    pub fn off_time_at(&self, now: Time) -> u64 {
        self.off_time + self.off_since.map_or(0, |since| now.since(since).0)
    }

    /// The vCPU waits for an acknowledgement from now on, or again; its target was without a pCPU for `off` in all.
    pub fn mark_target(&mut self, off: u64) {
        self.target_off = off;
    }

    /// Enters `span` of waiting for an acknowledgement; the target was without a pCPU for `off` in all.
    pub fn enter_ipi_wait(&mut self, span: Picos, off: u64) {
        let behind_preempted = Picos(off - std::mem::replace(&mut self.target_off, off)).min(span);
        self.ledger.enter(Cause::IpiPreemptedTarget, behind_preempted);
        self.ledger.enter(Cause::IpiRunningTarget, span - behind_preempted);
    }

    /// The vCPU waits for a lock from now on, or again.
    pub fn mark_lock(&mut self, clock: &BlameClock, now: Time) {
        self.mark = Some(Mark::take(clock, now));
    }

    /// Whether the vCPU has ever waited for a lock.
    pub fn has_mark(&self) -> bool {
        self.mark.is_some()
    }

    /// Enters the wait for a lock up to `now`. Returns how it divides by culprit.
    pub fn enter_lock_wait(&mut self, clock: &BlameClock, now: Time) -> Reading {
        let parts = self.mark.map_or([0; CULPRITS], |mark| mark.since(clock, now));
        for (cause, part) in SPIN_CAUSES.into_iter().zip(parts) {
            self.ledger.enter(cause, Picos(part));
        }
        self.mark_lock(clock, now);
        parts
    }

    /// `vcpu` changed from `before` to its present state at `now`. Returns whether it gained or lost its pCPU.
    pub fn state_changed(&mut self, vcpu: &Vcpu, before: VcpuState, now: Time) -> bool {
        let was_running = is_running(before);
        if was_running && matches!(vcpu.state, VcpuState::HandlingExit | VcpuState::InGuest) {
            return false;
        }
        self.out_cause = match vcpu.state {
            VcpuState::HandlingExit | VcpuState::InGuest => Cause::HostOverhead,
            VcpuState::Polling | VcpuState::Blocked if vcpu.announced.contending.is_some() => Cause::HaltedForLock,
            VcpuState::Polling | VcpuState::Blocked => Cause::Idle,
            VcpuState::Preempted => Cause::Runnable,
            VcpuState::Throttled => Cause::Throttled,
            VcpuState::Woken => Cause::WakeLatency,
            VcpuState::PauseSleep => Cause::ExitPause,
            // The VMM's device model works for the guest.
            VcpuState::Userspace => Cause::HostOverhead,
            VcpuState::Dead => Cause::Off,
        };
        self.gaps.state_changed(self.out_cause, now);
        if vcpu.is_running() == was_running {
            return false;
        }
        match self.off_since.take() {
            Some(since) => self.off_time += now.since(since).0,
            None => self.off_since = Some(now),
        }
        true
    }
}
