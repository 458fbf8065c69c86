//! The book of one guest: its work, its exits, its convoys, and what the hardware did for it.

use holdfast_host::VcpuState;
use holdfast_machine::{Picos, Time};

use crate::books::convoy::{Convoy, ConvoyWatch};
use crate::books::counters::{ApicCounts, IommuCounts};
use crate::books::yields::YieldCounts;
use crate::core::cause::Cause;
use crate::parts::vcpu::Vcpu;

/// A count for each cause.
#[derive(Clone, Copy, Debug)]
pub struct ByCause(pub [u64; Cause::ALL.len()]);

impl Default for ByCause {
    fn default() -> ByCause {
        ByCause([0; Cause::ALL.len()])
    }
}

/// The book of one guest.
#[derive(Clone, Debug, Default)]
pub struct GuestBook {
    /// Exits in the measured interval, by cause.
    pub exits: ByCause,
    /// Its work and its stalls.
    pub work: WorkWatch,
    /// Its convoys.
    pub convoys: ConvoyWatch,
    /// Losses of a pCPU around locks.
    pub losses: LockLosses,
    /// Targets of its directed yields.
    pub yields: YieldCounts,
    /// What AVIC or APICv did for it.
    pub apic: ApicCounts,
    /// What the IOMMU did with its devices' interrupts.
    pub iommu: IommuCounts,
    /// The host's counters when the statistics were zeroed, by name; empty if they were not.
    host_before: Vec<(&'static str, u64)>,
    /// Its longest stall and its convoys up to the end of its workload, once that is done.
    ended: Option<(Picos, Option<Convoy>)>,
}

impl GuestBook {
    /// The workload is done.
    pub fn end(&mut self) {
        self.ended
            .get_or_insert((self.work.longest_stall, self.convoys.found()));
    }

    /// The longest time without work and the convoys, of the guest's own time.
    pub fn stall_and_convoys(&self) -> (Picos, Option<Convoy>) {
        self.ended.unwrap_or((self.work.longest_stall, self.convoys.found()))
    }

    /// Counts from now on. `host` are the host's counters of the guest.
    pub fn zero(&mut self, host: Vec<(&'static str, u64)>) {
        self.exits = ByCause::default();
        self.losses = LockLosses::default();
        self.yields = YieldCounts::default();
        self.apic = ApicCounts::default();
        self.iommu = IommuCounts::default();
        self.host_before = host;
    }

    /// How far the host's counter `name`, which is `value` now, has counted since the statistics were zeroed. What is
    /// no count but the largest value so far stays.
    pub fn counted(&self, name: &str, value: u64) -> u64 {
        let before = self.host_before.iter().find(|(other, _)| *other == name);
        match before {
            Some((_, before)) if !name.ends_with("_max") => value - before,
            _ => value,
        }
    }

    /// A vCPU of the guest spent `span` from `start` on, in user mode if `user`, on its own work if `works`.
    ///
    /// What it spends its time on is not to be foretold, so no branch depends on it.
    #[inline(always)]
    pub fn spent(&mut self, start: Time, span: Picos, works: bool, user: bool) {
        let work = if works { span } else { Picos::ZERO };
        // Nothing happened at the end of no work.
        let end = if works { start + span } else { Time(0) };
        self.convoys.worked(end, work);
        self.work.worked(start, end, user);
    }
}

/// The last work of a guest's vCPUs, and the longest time without any.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkWatch {
    /// The end of the last useful or critical work.
    last: Time,
    /// The end of the last computation in user mode.
    last_user: Time,
    /// The last time that a lock was taken that no timer tick takes.
    pub last_lock: Time,
    /// The longest time without work since the workload began.
    pub longest_stall: Picos,
}

impl WorkWatch {
    /// A vCPU worked from `start` to `end`, which is 0 if it did not.
    #[inline(always)]
    fn worked(&mut self, start: Time, end: Time, user: bool) {
        let stall = Picos(start.min(end).0.saturating_sub(self.last.0));
        self.longest_stall = self.longest_stall.max(stall);
        self.last = self.last.max(end);
        self.last_user = self.last_user.max(if user { end } else { Time(0) });
    }

    /// The last time that the guest's work advanced: it computed in user mode, or took a lock. Ticks, which go on
    /// whatever the guest waits for, do not count.
    pub fn last_progress(&self) -> Time {
        self.last_user.max(self.last_lock)
    }

    /// The measured interval begins at `now`.
    pub fn interval_began(&mut self, now: Time) {
        self.last = now;
        self.longest_stall = Picos::ZERO;
    }
}

/// How often vCPUs lost their pCPU around locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockLosses {
    /// vCPUs preempted while they held a lock.
    pub preempted_holding: u64,
    /// vCPUs preempted while they waited for a lock.
    pub preempted_waiting: u64,
    /// vCPUs throttled while they held a lock.
    pub throttled_holding: u64,
    /// vCPUs throttled while they waited for a lock.
    pub throttled_waiting: u64,
}

impl LockLosses {
    /// `vcpu` changed from `before` to its present state.
    pub fn state_changed(&mut self, vcpu: &Vcpu, before: VcpuState) {
        let holding = u64::from(!vcpu.announced.held.is_empty());
        let waiting = u64::from(vcpu.announced.contending.is_some());
        match vcpu.state {
            VcpuState::Preempted if before != VcpuState::Throttled => {
                self.preempted_holding += holding;
                self.preempted_waiting += waiting;
            }
            VcpuState::Throttled => {
                self.throttled_holding += holding;
                self.throttled_waiting += waiting;
            }
            _ => {}
        }
    }
}
