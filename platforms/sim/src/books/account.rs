//! Accounting: what flows announce becomes entries in the ledgers, and waiting finds its culprit.

use holdfast_machine::{LineId, Picos};

use crate::books::blame::{CULPRITS, Culprit, Mark};
use crate::books::cause::Cause;
use crate::books::ledger::Stretch;
use crate::core::engine::Engine;

/// The cause that each culprit makes of a spin.
const SPIN_CAUSES: [Cause; CULPRITS] = [
    Cause::SpinRunningHolder,
    Cause::SpinPreemptedHolder,
    Cause::SpinPreemptedWaiter,
    Cause::CacheTransfer,
    Cause::SpinThrottledHolder,
    Cause::SpinThrottledWaiter,
];

/// How far blame follows a holder that waits itself.
const CHAIN_DEPTH: u32 = 4;

impl Engine {
    /// Enters all that `vcpu`, in guest mode, lived through up to now. While it waits for a lock that is left for later:
    /// the lock's clock knows how the whole wait divides.
    #[inline]
    pub fn settle(&mut self, vcpu: u32) {
        let this = &mut self.vcpus[vcpu as usize];
        let span = self.now.since(this.ledger.cursor());
        if span != Picos::ZERO && this.contending.is_none() {
            self.settle_work(vcpu, span);
        }
    }

    fn settle_work(&mut self, vcpu: u32, span: Picos) {
        let target = self.vcpus[vcpu as usize].ipi_target;
        let target_off = target.map_or(0, |(target, _)| self.vcpus[target as usize].off_time_at(self.now));
        let this = &mut self.vcpus[vcpu as usize];
        let vm = &mut self.vms[this.vm.0 as usize];
        let mut left = span;
        while left != Picos::ZERO {
            let lived = this.owed.live(left);
            left = left - lived.span;
            if let Some(recorder) = &mut self.timeline {
                recorder.work(vcpu, this, lived);
            }
            let Stretch { cause, user, span } = lived;
            match cause {
                Cause::Useful | Cause::CriticalSection => {
                    vm.worked(this.ledger.cursor(), span, user);
                    this.ledger.enter(cause, span);
                }
                Cause::IpiRunningTarget => {
                    let behind_preempted = this.target_was_off(target_off).min(span);
                    this.ledger.enter(Cause::IpiPreemptedTarget, behind_preempted);
                    this.ledger.enter(cause, span - behind_preempted);
                }
                _ => this.ledger.enter(cause, span),
            }
        }
    }

    /// Enters the wait for a lock that `vcpu` is in, up to now.
    pub fn settle_wait(&mut self, vcpu: u32) {
        let this = &self.vcpus[vcpu as usize];
        let (Some(line), Some(mark)) = (this.contending, this.mark) else {
            return;
        };
        self.record_wait(vcpu, line);
        let this = &mut self.vcpus[vcpu as usize];
        let clock = &self.records[line.0 as usize].lock.contended(self.now).clock;
        let parts = mark.since(clock, self.now);
        for (cause, part) in SPIN_CAUSES.into_iter().zip(parts) {
            this.ledger.enter(cause, Picos(part));
        }
        this.mark = Some(Mark::take(clock, self.now));
        let behind_preempted = [
            Culprit::PreemptedHolder,
            Culprit::PreemptedWaiter,
            Culprit::ThrottledHolder,
            Culprit::ThrottledWaiter,
        ]
        .map(|culprit| parts[culprit as usize])
        .iter()
        .sum();
        if behind_preempted > 0 {
            let now = self.now;
            self.vm_of(vcpu).convoys.spun(now, behind_preempted);
        }
    }

    /// `vcpu`, in guest mode, waits for a lock or an answer from now on, or again.
    pub fn mark(&mut self, vcpu: u32) {
        if let Some((target, _)) = self.vcpus[vcpu as usize].ipi_target {
            // What its target was off for while it was out itself is not part of its wait.
            let off = self.vcpus[target as usize].off_time_at(self.now);
            self.vcpus[vcpu as usize].ipi_target = Some((target, off));
        }
        let this = &mut self.vcpus[vcpu as usize];
        if let Some(line) = this.contending {
            let clock = &self.records[line.0 as usize].lock.contended(self.now).clock;
            this.mark = Some(Mark::take(clock, self.now));
        }
    }

    /// `vcpu` begins to wait for the lock in `line`.
    pub fn contention_begins(&mut self, vcpu: u32, line: LineId) {
        self.settle(vcpu);
        let this = &mut self.vcpus[vcpu as usize];
        // From here on all of its time is waiting, that for the lock's own line included.
        this.owed.clear();
        this.contending = Some(line);
        this.contentions += 1;
        self.records[line.0 as usize]
            .lock
            .contended(self.now)
            .waiters
            .push(vcpu);
        self.refresh_blame(line, CHAIN_DEPTH);
        self.mark(vcpu);
        self.refresh_held(vcpu, CHAIN_DEPTH);
    }

    /// `vcpu` waits no longer for the lock in `line`.
    pub fn contention_ends(&mut self, vcpu: u32, line: LineId) {
        self.settle_wait(vcpu);
        let now = self.now;
        let this = &mut self.vcpus[vcpu as usize];
        this.contending = None;
        let pending = this.clock.since(now);
        let fits = this.owe(Cause::CacheTransfer, pending);
        assert!(fits, "a waiter owes nothing but its wait");
        let contention = self.records[line.0 as usize].lock.contended(now);
        contention.waiters.retain(|&waiter| waiter != vcpu);
        self.refresh_blame(line, CHAIN_DEPTH);
        self.refresh_held(vcpu, CHAIN_DEPTH);
    }

    /// `vcpu` holds the lock in `line`.
    #[inline]
    pub fn lock_acquired(&mut self, vcpu: u32, line: LineId) {
        self.stats.acquisitions += 1;
        self.vcpus[vcpu as usize].held.push(line);
        let lock = &mut self.records[line.0 as usize].lock;
        lock.set_holder(Some(vcpu));
        if lock.has_waiters() {
            self.refresh_blame(line, CHAIN_DEPTH);
        }
    }

    /// `vcpu` releases the lock in `line`.
    #[inline]
    pub fn lock_released(&mut self, vcpu: u32, line: LineId) {
        let held = &mut self.vcpus[vcpu as usize].held;
        if let Some(index) = held.iter().rposition(|&other| other == line) {
            held.remove(index);
        }
        let lock = &mut self.records[line.0 as usize].lock;
        lock.set_holder(None);
        if lock.has_waiters() {
            self.refresh_blame(line, CHAIN_DEPTH);
        }
    }

    /// `vcpu` lost or regained its pCPU, or the right to one.
    pub fn running_changed(&mut self, vcpu: u32) {
        self.refresh_held(vcpu, CHAIN_DEPTH);
        if let Some(line) = self.vcpus[vcpu as usize].contending {
            self.refresh_blame(line, CHAIN_DEPTH);
        }
    }

    fn refresh_held(&mut self, vcpu: u32, depth: u32) {
        for index in 0..self.vcpus[vcpu as usize].held.len() {
            let line = self.vcpus[vcpu as usize].held[index];
            if self.records[line.0 as usize].lock.has_waiters() {
                self.refresh_blame(line, depth);
            }
        }
    }

    fn refresh_blame(&mut self, line: LineId, depth: u32) {
        let culprit = self.culprit(line);
        self.record_blame(line, culprit);
        let now = self.now;
        let contention = self.records[line.0 as usize].lock.contended(now);
        if contention.clock.current() == culprit {
            return;
        }
        contention.clock.set(culprit, now);
        if depth == 0 {
            return;
        }
        // Who waits here and holds other locks passes the blame on to those that wait for them.
        for index in 0..contention.waiters.len() {
            let Some(contention) = self.records[line.0 as usize].lock.contention() else {
                return;
            };
            let waiter = contention.waiters[index];
            self.refresh_held(waiter, depth - 1);
        }
    }

    fn culprit(&self, line: LineId) -> Culprit {
        let lock = &self.records[line.0 as usize].lock;
        let Some(holder) = lock.holder() else {
            let first = lock.contention().and_then(|contention| contention.waiters.first());
            return match first {
                Some(&waiter) if self.vcpus[waiter as usize].is_throttled() => Culprit::ThrottledWaiter,
                Some(&waiter) if !self.vcpus[waiter as usize].is_running() => Culprit::PreemptedWaiter,
                _ => Culprit::HandOver,
            };
        };
        let holder = &self.vcpus[holder as usize];
        let awaited = holder
            .contending
            .and_then(|line| self.records[line.0 as usize].lock.contention());
        match awaited.map(|contention| contention.clock.current()) {
            Some(Culprit::PreemptedHolder | Culprit::PreemptedWaiter) => Culprit::PreemptedHolder,
            Some(Culprit::ThrottledHolder | Culprit::ThrottledWaiter) => Culprit::ThrottledHolder,
            Some(_) if holder.is_running() => Culprit::RunningHolder,
            None if holder.is_running() => Culprit::RunningHolder,
            _ if holder.is_throttled() => Culprit::ThrottledHolder,
            _ => Culprit::PreemptedHolder,
        }
    }
}
