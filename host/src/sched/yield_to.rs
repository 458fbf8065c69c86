//! Giving up the CPU: yield and directed yield (docs/spec/host.md, "Yield and directed yield").
//!
//! A directed yield is a hint on both sides. The target is preferred on *its* pCPU as far as fairness allows. The
//! yielder is passed over once on its own. No thread migrates.

use super::Scheduler;
use super::entity::Mark;
use super::runqueue::ThreadState;
use crate::boundary::TaskId;
use crate::step::Step;

impl Scheduler {
    /// Makes the running thread of `pcpu` yield to `target`, which is preferred then. If that is done, the caller must
    /// call [`Scheduler::schedule`]. Returns `false` if the target runs, is not runnable or is throttled, or the
    /// scheduler has no directed yield.
    pub(crate) fn yield_to(&mut self, pcpu: u32, target: TaskId, step: &mut Step<'_>) -> bool {
        if !self.features.yield_to {
            return false;
        }
        let to = &self.threads[target];
        let waits = !to.on_cpu && to.state == ThreadState::Runnable;
        if !waits || self.hierarchy.is_throttled(to.entity) {
            return false;
        }
        let (there, entity) = (to.pcpu, to.entity);
        self.hierarchy.mark(entity, Mark::Next);
        self.yield_current(pcpu);
        if there != pcpu {
            self.resched(there, step);
        }
        true
    }

    /// Returns whether the running thread of `pcpu` and `target` each have their pCPU alone, so that no thread waits.
    pub(crate) fn both_alone(&self, pcpu: u32, target: TaskId) -> bool {
        self.nr_running(pcpu) == 1 && self.nr_running(self.threads[target].pcpu) == 1
    }

    /// Makes the running thread of `pcpu` give way, as the scheduler's rule demands.
    pub(crate) fn yield_current(&mut self, pcpu: u32) {
        let Some(curr) = self.rq(pcpu).curr else { return };
        let (entity, alone) = (self.threads[curr].entity, self.runs_alone(pcpu));
        let policy = self.hierarchy.policy;
        policy.give_way(&mut self.hierarchy, entity, alone);
    }
}
