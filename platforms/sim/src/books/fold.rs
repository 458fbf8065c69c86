//! The books of a run, and how each happening is entered in them.

use holdfast_abi::lapic;
use holdfast_host::{ApicRegisters, IdVec, Run, VcpuId, VcpuState, VmId};
use holdfast_machine::Time;

use crate::books::account::Account;
use crate::books::audit::Audit;
use crate::books::blame::{Culprit, Reading};
use crate::books::counters::EngineStats;
use crate::books::guest::GuestBook;
use crate::books::happened::{Happened, View};
use crate::books::hash::HistoryHash;
use crate::books::locks::LockBook;
use crate::books::timeline::{Recorder, Timeline};
use crate::core::cause::Cause;
use crate::core::failure::Failure;
use crate::core::pending::{Kind, Stretch};
use crate::parts::vcpu::{Announced, Vcpu, is_running};

/// The books of a run.
#[derive(Debug)]
pub struct Books {
    /// The history's hash.
    pub hash: HistoryHash,
    /// Counts of the engine's own work.
    pub stats: EngineStats,
    /// The locks of all guests.
    pub locks: LockBook,
    /// The time of all vCPUs.
    pub accounts: IdVec<VcpuId, Account>,
    /// The guests.
    pub guests: IdVec<VmId, GuestBook>,
    /// The audit of interrupts, if there is one.
    pub audit: Option<Box<Audit>>,
    /// The guests are stopped for a live migration.
    stopped: bool,
    /// VMMs make vCPUs sleep, so that a live migration converges.
    throttled: bool,
    /// For each vCPU the last IPI that hardware sent it without the host while it was out of its guest: the sender, and
    /// when.
    pub missed: IdVec<VcpuId, Option<(VcpuId, Time)>>,
    /// The recorder of the timeline, if there is one.
    timeline: Option<Box<Recorder>>,
}

impl Books {
    /// Empty books for `vms` guests with `vcpus`, without audit and timeline.
    pub fn new(vcpus: &IdVec<VcpuId, Vcpu>, vms: usize) -> Books {
        Books {
            hash: HistoryHash::new(),
            stats: EngineStats::default(),
            locks: LockBook::default(),
            accounts: vcpus.iter().map(Account::new).collect(),
            guests: IdVec::filled(GuestBook::default(), vms),
            audit: None,
            stopped: false,
            throttled: false,
            missed: IdVec::filled(None, vcpus.len()),
            timeline: None,
        }
    }

    /// Returns whether a timeline is recorded.
    pub fn is_recording(&self) -> bool {
        self.timeline.is_some()
    }

    /// Records a timeline from now on.
    pub fn record(&mut self, recorder: Recorder) {
        self.timeline = Some(Box::new(recorder));
    }

    /// The first fault that a book has found in the run.
    #[inline]
    pub fn failure(&self) -> Option<&Failure> {
        self.audit.as_ref()?.failure.as_ref()
    }

    /// Enters what `happened`.
    ///
    /// Inlined where it is called, with a happening that is known there: one arm of each match remains.
    #[inline(always)]
    pub fn observe(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        self.hash.observe(view, happened);
        self.account(view, happened);
        self.count(view, happened);
        // Copies of the view: what seldom happens builds it, not each happening.
        if let Some(audit) = &mut self.audit {
            audit.observe(&{ *view }, happened);
        }
        if let Some(recorder) = &mut self.timeline {
            recorder.observe(&{ *view }, happened);
        }
    }

    /// Where pending time of `vcpu`, which is `this`, is entered when it has been used.
    #[inline]
    pub fn work_of(&mut self, now: Time, vcpu: VcpuId, this: &Vcpu) -> WorkBook<'_> {
        let target = this.announced.ipi_target;
        WorkBook {
            target_off: target.map(|target| self.accounts[target].off_time_at(now)),
            plain: PlainWorkBook {
                account: &mut self.accounts[vcpu],
                guest: &mut self.guests[this.vm],
            },
            timeline: self.timeline.as_deref_mut(),
        }
    }

    /// The same, if used time needs no more than an entry: no timeline is recorded, and `vcpu` does not wait for an
    /// acknowledgement.
    #[inline(always)]
    pub fn plain_work_of(&mut self, vcpu: VcpuId, this: &Vcpu) -> Option<PlainWorkBook<'_>> {
        let is_plain = self.timeline.is_none() && this.announced.ipi_target.is_none();
        is_plain.then(|| PlainWorkBook {
            account: &mut self.accounts[vcpu],
            guest: &mut self.guests[this.vm],
        })
    }

    /// Time and blame.
    #[inline(always)]
    fn account(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        let now = view.now;
        match *happened {
            Happened::Entered { vcpu, .. } | Happened::Continued { vcpu } | Happened::Ended { vcpu } => {
                self.close_out(
                    view,
                    vcpu,
                    !matches!(happened, Happened::Continued { .. }),
                    view.vcpu(vcpu).is_running(),
                );
            }
            Happened::Exited { vcpu, cause, .. } => self.accounts[vcpu].out_cause = cause,
            Happened::Slowed {
                vcpu,
                within,
                cause,
                span,
            } => self.accounts[vcpu].ledger.slowed(within, cause, span),
            Happened::GuestsStopped => self.stopped = true,
            Happened::GuestsResumed => self.guests_resumed(view),
            Happened::GuestsThrottled { percent } => self.throttled = percent > 0,
            Happened::NativeStopped { vcpu } => {
                self.accounts[vcpu].out_cause = Cause::HostOverhead;
                self.record_out(now, vcpu, true);
            }
            Happened::NativeIs { vcpu, cause } => self.native_is(view, vcpu, cause),
            Happened::NestedEntered { vcpu } => self.is_out_for(view, vcpu, Cause::NestedGuest),
            Happened::NestedLeft { vcpu, cause } => self.is_out_for(view, vcpu, cause),
            Happened::StateChanged { vcpu, before } => self.state_changed(view, vcpu, before),
            Happened::Waits { vcpu } => self.waits(view, vcpu),
            Happened::Waited { vcpu } => self.waited(view, vcpu),
            Happened::ContentionBegan { vcpu, line } => {
                self.locks.contention_began(view, &mut self.timeline, vcpu, line);
                self.waits(view, vcpu);
            }
            Happened::ContentionEnded { vcpu, line } => {
                self.locks.contention_ended(view, &mut self.timeline, vcpu, line);
            }
            Happened::LockAcquired { vcpu, line } => {
                self.locks.acquired(view, &mut self.timeline, line, vcpu);
            }
            Happened::LockReleased { vcpu, line } => self.locks.released(view, &mut self.timeline, line, vcpu),
            Happened::Taken { vcpu, vector } => self.interrupted(view, vcpu, vector),
            Happened::Chosen {
                run:
                    Run::Guest {
                        vcpu,
                        inject: Some(vector),
                        ..
                    },
                ..
            } => self.interrupted(view, vcpu, vector),
            Happened::IpiPended {
                vcpu,
                targets,
                exits: false,
                ..
            } => {
                let vm = &view.vms[view.vm_of(vcpu)];
                targets
                    .others()
                    .for_each(|id| self.sent_without_host(view, vcpu, vm.vcpu(id)));
            }
            Happened::LockNamed { vcpu, class, .. } if !class.is_of_tick() => {
                self.guests[view.vm_of(vcpu)].work.last_lock = now;
            }
            _ => {}
        }
    }

    /// Enters the time of `vcpu` out of its guest up to now.
    #[inline(always)]
    fn close_out(&mut self, view: &View<'_>, vcpu: VcpuId, recorded: bool, was_running: bool) {
        if recorded {
            self.record_out(view.now, vcpu, was_running);
        }
        self.accounts[vcpu].enter_out(view.now);
    }

    /// Records in the timeline that `vcpu` was out of its guest up to now, with a pCPU if `was_running`.
    #[inline(always)]
    fn record_out(&mut self, now: Time, vcpu: VcpuId, was_running: bool) {
        if let Some(recorder) = &mut self.timeline {
            let cause = self.accounts[vcpu].out_cause;
            recorder.was_out(now, vcpu, was_running.then_some(cause));
        }
    }

    /// `vcpu`, which has a pCPU and is out of its own flow, is so for `cause` from now on.
    fn is_out_for(&mut self, view: &View<'_>, vcpu: VcpuId, cause: Cause) {
        self.close_out(view, vcpu, true, true);
        self.accounts[vcpu].out_cause = cause;
    }

    fn native_is(&mut self, view: &View<'_>, vcpu: VcpuId, cause: Cause) {
        let account = &mut self.accounts[vcpu];
        if view.vcpu(vcpu).pcpu.is_none() && account.out_cause != cause {
            account.enter_out(view.now);
            account.out_cause = cause;
            self.record_out(view.now, vcpu, true);
        }
    }

    #[inline(always)]
    fn state_changed(&mut self, view: &View<'_>, vcpu: VcpuId, before: VcpuState) {
        let this = view.vcpu(vcpu);
        if this.pcpu.is_none() {
            self.close_out(view, vcpu, true, is_running(before));
        }
        let moved = self.accounts[vcpu].state_changed(this, before, view.now);
        if self.stopped {
            self.accounts[vcpu].out_cause = Cause::MigrationStop;
        } else if self.throttled && this.state == VcpuState::PauseSleep {
            self.accounts[vcpu].out_cause = Cause::MigrationThrottle;
        }
        if moved || this.is_throttled() != (before == VcpuState::Throttled) {
            self.locks.running_changed(&{ *view }, &mut self.timeline, vcpu);
        }
    }

    /// `vcpu` waits, in guest mode, from now on or again.
    #[inline(always)]
    fn waits(&mut self, view: &View<'_>, vcpu: VcpuId) {
        let announced = &view.vcpu(vcpu).announced;
        if let Some(target) = announced.ipi_target {
            // The wait does not include the time that its target was off while the vCPU itself was out of its guest.
            let off = self.accounts[target].off_time_at(view.now);
            self.accounts[vcpu].mark_target(off);
        }
        if let Some(line) = announced.contending {
            let clock = &self.locks.contended(line, view.now).clock;
            self.accounts[vcpu].mark_lock(clock, view.now);
        }
    }

    /// Enters the wait of `vcpu` for a lock up to now.
    #[inline(always)]
    fn waited(&mut self, view: &View<'_>, vcpu: VcpuId) {
        let this = view.vcpu(vcpu);
        let Some(line) = this.announced.contending else { return };
        if !self.accounts[vcpu].has_mark() {
            return;
        }
        if let Some(recorder) = &mut self.timeline {
            recorder.waited(view.now, vcpu, line);
        }
        let clock = &self.locks.contended(line, view.now).clock;
        let parts = self.accounts[vcpu].enter_lock_wait(clock, view.now);
        let behind_preempted = behind_preempted(&parts);
        if behind_preempted > 0 {
            self.guests[this.vm].convoys.spun(view.now, behind_preempted);
        }
    }

    /// Counters of the guests.
    #[inline(always)]
    fn count(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        match *happened {
            Happened::ExitReachedHost { vcpu } => {
                let vm = view.vm_of(vcpu);
                if view.vms[vm].report.is_measuring() {
                    self.guests[vm].exits.0[self.accounts[vcpu].out_cause as usize] += 1;
                }
            }
            Happened::StateChanged { vcpu, before } => {
                let this = view.vcpu(vcpu);
                self.guests[this.vm].losses.state_changed(this, before);
            }
            Happened::DirectedYield { from, to, done } => {
                let counts = &mut self.guests[view.vm_of(from)].yields;
                counts.tried(view, &self.locks, from, to, done);
            }
            Happened::Taken { vcpu, .. } => self.guests[view.vm_of(vcpu)].apic.interrupts += 1,
            Happened::ApicAccessed { vcpu } => self.guests[view.vm_of(vcpu)].apic.accesses += 1,
            Happened::HaltSkipped { vcpu } => self.guests[view.vm_of(vcpu)].apic.halts_skipped += 1,
            Happened::IpiSent { vcpu } => self.guests[view.vm_of(vcpu)].apic.ipis += 1,
            Happened::IpiPended {
                vcpu, doorbells, exits, ..
            } => {
                let counts = &mut self.guests[view.vm_of(vcpu)].apic;
                counts.signals += doorbells;
                counts.ipis_without_exit += u64::from(!exits);
            }
            Happened::IpiPosted { vcpu, notified } => {
                let counts = &mut self.guests[view.vm_of(vcpu)].apic;
                counts.signals += u64::from(notified);
                counts.ipis_without_exit += 1;
            }
            Happened::DoorbellMissed { vcpu } => self.guests[view.vm_of(vcpu)].apic.doorbells_missed += 1,
            Happened::Notified { vcpu } => self.guests[view.vm_of(vcpu)].apic.notified += 1,
            Happened::DeviceSignaled {
                vm: Some(vm), delivery, ..
            } => self.guests[vm].iommu.delivered(delivery),
            Happened::IntervalBegan { vm } => self.guests[vm].work.interval_began(view.now),
            Happened::IntervalEnded { vm } => self.guest_ended(view, vm),
            _ => {}
        }
    }

    /// The stop of all guests for a live migration ends.
    fn guests_resumed(&mut self, view: &View<'_>) {
        self.stopped = false;
        for vcpu in view.vcpus.ids() {
            self.close_out(view, vcpu, true, true);
            self.accounts[vcpu].out_cause = Cause::HostOverhead;
        }
    }

    /// `vcpu` takes `vector`.
    fn interrupted(&mut self, view: &View<'_>, vcpu: VcpuId, vector: u8) {
        let this = view.vcpu(vcpu);
        if !this.is_without_apic() && view.host.apic_page(vcpu).load(lapic::LVT_TIMER) as u8 == vector {
            self.accounts[vcpu].gaps.ticked(view.now);
        }
    }

    /// Hardware has pended an IPI of `from` for `target`, and the host gets no exit for it.
    fn sent_without_host(&mut self, view: &View<'_>, from: VcpuId, target: VcpuId) {
        if view.vcpu(target).state != VcpuState::InGuest {
            self.missed[target] = Some((from, view.now));
        }
    }

    /// The workload of `vm` is done: what comes later is no time of the guest's.
    fn guest_ended(&mut self, view: &View<'_>, vm: VmId) {
        for vcpu in view.vms[vm].vcpu_ids() {
            self.accounts[vcpu].ledger.end_at(view.now);
            self.accounts[vcpu].gaps.end_at(view.now);
        }
        self.guests[vm].end();
    }

    /// Takes the timeline out. `closed` says whether the accounts were closed: they are not after a failure.
    ///
    /// # Panics
    /// If no timeline was recorded.
    pub fn take_timeline(&mut self, view: &View<'_>, closed: bool) -> Timeline {
        let mut recorder = self.timeline.take().expect("the run has no recorder");
        if !closed {
            recorder.close_spins(view);
        }
        recorder.finish(view)
    }
}

/// The books in which the used time of one vCPU is entered.
#[derive(Debug)]
pub struct WorkBook<'b> {
    plain: PlainWorkBook<'b>,
    timeline: Option<&'b mut Recorder>,
    /// Picoseconds in which the vCPU whose acknowledgement it waits for had no pCPU.
    target_off: Option<u64>,
}

impl WorkBook<'_> {
    /// `vcpu`, which is in guest mode and has `announced` that, used `stretch` of its pending time.
    #[inline(always)]
    pub fn used(&mut self, vcpu: VcpuId, announced: &Announced, stretch: Stretch) {
        let account = &mut self.plain.account;
        if let Some(recorder) = &mut self.timeline {
            recorder.used(vcpu, announced, account.ledger.cursor(), stretch);
        }
        match (self.target_off, stretch.kind.cause) {
            (Some(off), Cause::IpiRunningTarget) => account.enter_ipi_wait(stretch.span, off),
            _ => self.plain.spent(stretch),
        }
    }
}

/// The part of a [`WorkBook`] that all time needs.
#[derive(Debug)]
pub struct PlainWorkBook<'b> {
    account: &'b mut Account,
    guest: &'b mut GuestBook,
}

impl PlainWorkBook<'_> {
    /// The vCPU spent its next `stretch`.
    #[inline(always)]
    pub fn spent(&mut self, stretch: Stretch) {
        let Stretch { kind, span } = stretch;
        let Kind { cause, user } = kind;
        let ledger = &mut self.account.ledger;
        let works = matches!(cause, Cause::Useful | Cause::CriticalSection);
        self.guest.spent(ledger.cursor(), span, works, user);
        ledger.enter(cause, span);
    }

    /// Whether all time of the vCPU is entered up to `now`.
    #[inline(always)]
    pub fn is_entered_until(&self, now: Time) -> bool {
        self.account.ledger.cursor() == now
    }
}

/// Picoseconds of a wait behind vCPUs that were not running.
fn behind_preempted(parts: &Reading) -> u64 {
    let culprits = [
        Culprit::PreemptedHolder,
        Culprit::PreemptedWaiter,
        Culprit::ThrottledHolder,
        Culprit::ThrottledWaiter,
    ];
    culprits.map(|culprit| parts[culprit as usize]).iter().sum()
}
