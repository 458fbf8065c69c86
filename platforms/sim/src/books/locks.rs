//! The book of locks: who holds and who awaits each, and behind whom the waiters wait.

use holdfast_host::VcpuId;
use holdfast_machine::{LineId, Time};

use crate::books::blame::{Contention, Culprit, LockRecord};
use crate::books::happened::View;
use crate::books::timeline::Recorder;

/// How far blame follows a holder that waits itself.
const CHAIN_DEPTH: u32 = 4;

/// The locks of all guests, by their cache lines.
#[derive(Clone, Debug, Default)]
pub struct LockBook {
    records: Vec<LockRecord>,
}

/// What the timeline draws of blame, if there is a recorder.
type Timeline<'t> = &'t mut Option<Box<Recorder>>;

impl LockBook {
    /// The vCPU that holds the lock in `line`.
    pub fn holder(&self, line: LineId) -> Option<VcpuId> {
        self.records.get(line.0 as usize)?.holder
    }

    /// The vCPU that released the lock in `line` last.
    pub fn last_holder(&self, line: LineId) -> Option<VcpuId> {
        self.records.get(line.0 as usize)?.last_holder
    }

    /// A vCPU that holds the lock in `line`: of several readers one that does not run, if there is one.
    fn slowest_holder(&self, view: &View<'_>, line: LineId) -> Option<VcpuId> {
        let lock = self.records.get(line.0 as usize)?;
        let absent = lock.sharers.iter().find(|&&reader| !view.vcpu(reader).is_running());
        absent.copied().or(lock.holder)
    }

    /// The first vCPU in line for the lock in `line`.
    pub fn first_waiter(&self, line: LineId) -> Option<VcpuId> {
        self.contention(line)?.waiters.first().copied()
    }

    fn contention(&self, line: LineId) -> Option<&Contention> {
        self.records.get(line.0 as usize)?.contention.as_deref()
    }

    /// The record of the lock in `line`; the book grows by empty records if it is not there yet.
    #[inline]
    fn record(&mut self, line: LineId) -> &mut LockRecord {
        let index = line.0 as usize;
        if index >= self.records.len() {
            self.records.resize_with(index + 1, LockRecord::default);
        }
        &mut self.records[index]
    }

    /// The contention for the lock in `line`.
    pub fn contended(&mut self, line: LineId, now: Time) -> &mut Contention {
        self.record(line).contended(now)
    }

    /// `vcpu` begins to wait for the lock in `line`.
    pub fn contention_began(&mut self, view: &View<'_>, timeline: Timeline<'_>, vcpu: VcpuId, line: LineId) {
        self.contended(line, view.now).waiters.push(vcpu);
        self.refresh(view, timeline, line, CHAIN_DEPTH);
        self.refresh_held(view, timeline, vcpu, CHAIN_DEPTH);
    }

    /// `vcpu` no longer waits for the lock in `line`.
    pub fn contention_ended(&mut self, view: &View<'_>, timeline: Timeline<'_>, vcpu: VcpuId, line: LineId) {
        let contention = self.contended(line, view.now);
        contention.waiters.retain(|&waiter| waiter != vcpu);
        self.refresh(view, timeline, line, CHAIN_DEPTH);
        self.refresh_held(view, timeline, vcpu, CHAIN_DEPTH);
    }

    /// `vcpu` holds the lock in `line` from now on.
    #[inline]
    pub fn acquired(&mut self, view: &View<'_>, timeline: Timeline<'_>, line: LineId, vcpu: VcpuId) {
        self.held(view, timeline, line, |lock| lock.acquired(vcpu));
    }

    /// `vcpu` no longer holds the lock in `line`.
    #[inline]
    pub fn released(&mut self, view: &View<'_>, timeline: Timeline<'_>, line: LineId, vcpu: VcpuId) {
        self.held(view, timeline, line, |lock| lock.released(vcpu));
    }

    #[inline]
    fn held(&mut self, view: &View<'_>, timeline: Timeline<'_>, line: LineId, change: impl FnOnce(&mut LockRecord)) {
        let lock = self.record(line);
        change(lock);
        if lock.has_waiters() {
            self.refresh(&{ *view }, timeline, line, CHAIN_DEPTH);
        }
    }

    /// `vcpu` lost or regained its pCPU, or the right to one.
    pub fn running_changed(&mut self, view: &View<'_>, timeline: Timeline<'_>, vcpu: VcpuId) {
        self.refresh_held(view, timeline, vcpu, CHAIN_DEPTH);
        if let Some(line) = view.vcpu(vcpu).announced.contending {
            self.refresh(view, timeline, line, CHAIN_DEPTH);
        }
    }

    /// Finds out again behind whom the waiters wait, for all locks that `vcpu` holds.
    fn refresh_held(&mut self, view: &View<'_>, timeline: Timeline<'_>, vcpu: VcpuId, depth: u32) {
        for &line in &view.vcpu(vcpu).announced.held {
            if self.first_waiter(line).is_some() {
                self.refresh(view, timeline, line, depth);
            }
        }
    }

    /// Finds out again behind whom the waiters for the lock in `line` wait.
    fn refresh(&mut self, view: &View<'_>, timeline: Timeline<'_>, line: LineId, depth: u32) {
        let culprit = self.culprit(view, line);
        if let Some(recorder) = timeline {
            recorder.blame(view, line, culprit, self.record(line));
        }
        let contention = self.contended(line, view.now);
        if contention.clock.current == culprit {
            return;
        }
        contention.clock.set(culprit, view.now);
        if depth == 0 {
            return;
        }
        // A vCPU that waits here and holds other locks passes the blame on to the waiters for those.
        for index in 0..contention.waiters.len() {
            let Some(contention) = self.contention(line) else {
                return;
            };
            let waiter = contention.waiters[index];
            self.refresh_held(view, timeline, waiter, depth - 1);
        }
    }

    fn culprit(&self, view: &View<'_>, line: LineId) -> Culprit {
        let Some(holder) = self.slowest_holder(view, line) else {
            return match self.first_waiter(line) {
                Some(waiter) if view.vcpu(waiter).is_throttled() => Culprit::ThrottledWaiter,
                Some(waiter) if !view.vcpu(waiter).is_running() => Culprit::PreemptedWaiter,
                _ => Culprit::HandOver,
            };
        };
        let holder = view.vcpu(holder);
        let awaited = holder.announced.contending.and_then(|line| self.contention(line));
        match awaited.map(|contention| contention.clock.current) {
            Some(Culprit::PreemptedHolder | Culprit::PreemptedWaiter) => Culprit::PreemptedHolder,
            Some(Culprit::ThrottledHolder | Culprit::ThrottledWaiter) => Culprit::ThrottledHolder,
            Some(_) if holder.is_running() => Culprit::RunningHolder,
            None if holder.is_running() => Culprit::RunningHolder,
            _ if holder.is_throttled() => Culprit::ThrottledHolder,
            _ => Culprit::PreemptedHolder,
        }
    }
}
