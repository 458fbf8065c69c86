//! Moving threads between pCPUs: which may move, and how much load (Linux 3.3: `load_balance_fair`,
//! `can_migrate_task`).

use super::super::entity::EntityKind;
use super::super::ids::QueueId;
use super::super::policy::{Arrival, Departure};
use super::super::seam::parts;
use super::super::weight::mul_div;
use super::super::{Scheduler, ThreadState};
use crate::boundary::{Cost, TaskId};
use crate::step::Step;

/// A pull of threads to a pCPU, and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    to: u32,
    /// The number of the domain that is balanced.
    level: usize,
    /// How many more threads it may examine.
    looks: u32,
    pub(super) moved: u32,
    /// Every thread examined must stay on its pCPU.
    pub(super) all_pinned: bool,
}

/// A reason why a thread stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// It may not run on the other pCPU.
    Pinned,
    /// It runs, is throttled or is cache-hot.
    ForNow,
}

impl Scheduler {
    /// Pulls up to `imbalance` of load from `from` to `pcpu`.
    pub(super) fn pull(&mut self, pcpu: u32, level: usize, from: u32, imbalance: u64, step: &mut Step<'_>) -> Pull {
        let mut pull = Pull {
            to: pcpu,
            level,
            looks: self.nr_migrate,
            moved: 0,
            all_pinned: true,
        };
        if self.nr_running(from) <= 1 {
            pull.all_pinned = false;
            return pull;
        }
        let mut left = imbalance as i64;
        let mut leaf = 0;
        while let Some(&queue) = self.hierarchy.leaves[from as usize].get(leaf) {
            leaf += 1;
            if self.hierarchy.queues[queue].task_weight == 0 {
                continue;
            }
            // Converts the imbalance to this queue's weights, and back.
            let whole = self.hierarchy.hierarchical_load(queue);
            let weight = self.hierarchy.queue_load(queue);
            let ask = mul_div(left as u64, weight, whole + 1);
            let moved = self.pull_from(queue, ask, &mut pull, step);
            left -= mul_div(moved, whole, weight + 1) as i64;
            if left <= 0 || pull.looks == 0 {
                break;
            }
        }
        pull
    }

    /// Pulls up to `ask` of weight out of one queue. Returns the weight moved.
    fn pull_from(&mut self, queue: QueueId, ask: u64, pull: &mut Pull, step: &mut Step<'_>) -> u64 {
        let mut left = ask as i64;
        let mut at = self.hierarchy.queues[queue].tasks;
        while let Some(id) = at {
            let entity = &self.hierarchy.entities[id];
            at = entity.list_next;
            let EntityKind::Task(task) = entity.kind else {
                panic!("a group in a list of threads")
            };
            if pull.looks == 0 {
                break;
            }
            pull.looks -= 1;
            let weight = self.hierarchy.entity_load(id);
            // A thread stays if moving it overshoots by more than half of its weight. Since 5.10: if it overshoots at
            // all, which each failed pass allows more of (`shr_bound`).
            let failed = self.topology.domains[pull.to as usize][pull.level].failed;
            let counts = weight >> if self.halves_differences { failed.min(63) } else { 1 };
            if counts as i64 > left {
                pull.all_pinned = false;
                continue;
            }
            let stays = self.stays(task, pull.to, pull.level);
            pull.all_pinned &= stays == Some(Stays::Pinned);
            if stays.is_some() {
                continue;
            }
            self.move_to(task, pull.to, step);
            pull.moved += 1;
            left -= weight as i64;
            if left <= 0 {
                break;
            }
        }
        (ask as i64 - left) as u64
    }

    /// Returns why `task` may not move to `pcpu` in a pass over domain number `level` of `pcpu`, or `None` if it may.
    fn stays(&mut self, task: TaskId, pcpu: u32, level: usize) -> Option<Stays> {
        let thread = &self.threads[task];
        if !thread.may_run_on(pcpu) {
            return Some(Stays::Pinned);
        }
        if thread.on_cpu || self.hierarchy.is_throttled(thread.entity) || self.is_throttled_at(task, pcpu) {
            return Some(Stays::ForNow);
        }
        if !self.seam.moves(parts!(self), task, pcpu) {
            return Some(Stays::ForNow);
        }
        let domain = &self.topology.domains[pcpu as usize][level];
        let tries = self.topology.spans[domain.span].config.cache_nice_tries;
        (domain.failed <= tries && self.is_cache_hot(task, pcpu)).then_some(Stays::ForNow)
    }

    /// Returns whether `task` would be throttled on `pcpu`.
    fn is_throttled_at(&self, task: TaskId, pcpu: u32) -> bool {
        let group = &self.hierarchy.groups[self.threads[task].group];
        group.queues[pcpu as usize].is_some_and(|queue| self.hierarchy.queues[queue].quota.throttles > 0)
    }

    pub(in super::super) fn is_cache_hot(&self, task: TaskId, pcpu: u32) -> bool {
        let id = self.threads[task].entity;
        let entity = &self.hierarchy.entities[id];
        let queue = &self.hierarchy.queues[entity.queue];
        let buddy = queue.next == Some(id) || queue.last == Some(id);
        if buddy && self.nr_running(pcpu) > 0 {
            return true;
        }
        self.now() - entity.exec_start < self.migration_cost_ns
    }

    /// Moves a runnable thread that is not running.
    pub(in super::super) fn move_to(&mut self, task: TaskId, pcpu: u32, step: &mut Step<'_>) {
        assert!(!self.threads[task].on_cpu, "task {} cannot move while it runs", task.0);
        assert_eq!(
            self.threads[task].state,
            ThreadState::Runnable,
            "task {} cannot move",
            task.0
        );
        let (entity, now) = (self.threads[task].entity, self.now());
        self.hierarchy.dequeue(entity, Departure::Move);
        let thread = &mut self.threads[task];
        thread.run_delay += now - thread.queued_at;
        self.rehome(task, pcpu);
        self.activate(task, Arrival::Moved, step);
    }

    /// Active balancing: `from`, whose running thread has just been stopped, gives one thread to `to`.
    pub(in super::super) fn push_one(&mut self, from: u32, to: u32, step: &mut Step<'_>) {
        // The stopper thread runs for a moment.
        step.charge(Cost::ContextSwitch, 1);
        let Some(level) = self.topology.common_level(to, from) else {
            return;
        };
        for leaf in 0..self.hierarchy.leaves[from as usize].len() {
            let mut at = self.hierarchy.queues[self.hierarchy.leaves[from as usize][leaf]].tasks;
            while let Some(id) = at {
                let entity = &self.hierarchy.entities[id];
                at = entity.list_next;
                let EntityKind::Task(task) = entity.kind else {
                    panic!("a group in a list of threads")
                };
                if self.stays(task, to, level).is_none() {
                    self.move_to(task, to, step);
                    return;
                }
            }
        }
    }
}
