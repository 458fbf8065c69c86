//! Giving the CPU away: yield, and directed yield (§4.2, the form of 2.6.39 and later).
//!
//! A directed yield is a hint on both sides: the target is preferred on *its* pCPU as far as fairness allows, the yielder
//! is passed over once on its own. Nothing migrates.

use super::Scheduler;
use super::buddy::Mark;
use super::runqueue::ThreadState;
use crate::boundary::TaskId;
use crate::step::Step;

/// What became of a directed yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum YieldTo {
    /// The target is preferred, the yielder gives way.
    Done,
    /// The target runs, or is not runnable.
    Unsuitable,
}

impl Scheduler {
    /// The running thread of `pcpu` yields to `target`; the caller then calls [`Scheduler::schedule`] if it was done.
    pub(crate) fn yield_to(&mut self, pcpu: u32, target: TaskId, step: &mut Step<'_>) -> YieldTo {
        let to = self.thread(target);
        if to.on_cpu || to.state != ThreadState::Runnable {
            return YieldTo::Unsuitable;
        }
        let (there, entity) = (to.pcpu, to.entity);
        self.hierarchy.mark(entity, Mark::Next);
        self.yield_current(pcpu);
        if there != pcpu {
            self.resched(there, step);
        }
        YieldTo::Done
    }

    /// Whether the running thread of `pcpu` and `target` have their pCPUs for themselves: then nobody waits for anybody.
    pub(crate) fn both_alone(&self, pcpu: u32, target: TaskId) -> bool {
        self.rq(pcpu).nr_running == 1 && self.rq(self.thread(target).pcpu).nr_running == 1
    }

    /// The running thread of `pcpu` asks to be passed over once, on every level. Nothing if it is alone.
    pub(crate) fn yield_current(&mut self, pcpu: u32) {
        let Some(curr) = self.rq(pcpu).curr else { return };
        if self.runs_alone(pcpu) {
            return;
        }
        let entity = self.thread(curr).entity;
        self.hierarchy.clear_buddies(entity);
        self.hierarchy.account(self.hierarchy.entity(entity).queue);
        self.hierarchy.mark(entity, Mark::Skip);
    }
}
