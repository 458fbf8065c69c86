//! Proposed effects of directed yield beyond its marks, which make the preference last for more than one pick
//! (docs/spec/host.md, "Proposals of 2025 and 2026").
//!
//! They are in no kernel. The *debooster* of November and December 2025 pushes the yielder back. The *lag credit* of
//! June 2026 pulls the target forward. Both act only if yielder and target share a run queue, and only under EEVDF.
//! Read from the posted series; parts marked so below are uncertain.
//!
//! - **Credit is bounded**: credited lag never exceeds the algorithm's own bound. A push is not bounded by it, which is
//!   one reason why it was given up.
//! - **Pushes are rare**: one on a pCPU in each interval.

use super::Scheduler;
use super::eevdf::Eevdf;
use super::fault::Fault;
use super::favor_config::YieldFavor;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::policy::Rules;
use super::weight::scaled;
use crate::boundary::TaskId;
use crate::step::Step;

/// Returns the largest push of a yielder in a queue of `queued`, in halves of a slice.
fn most_halves(queued: u32) -> u64 {
    match queued {
        0..=2 => 12,
        3 => 8,
        4..=6 => 5,
        7..=8 => 4,
        9..=12 => 3,
        13.. => 2,
    }
}

impl Scheduler {
    /// Favors `target`, which waits on `pcpu`, over the thread that runs there. Returns whether virtual times were
    /// moved.
    pub(super) fn favor(&mut self, pcpu: u32, target: TaskId) -> bool {
        let Rules::Eevdf(eevdf) = self.hierarchy.policy else {
            return false;
        };
        let Some(yielder) = self.rq(pcpu).curr else {
            return false;
        };
        match self.favor.rule {
            YieldFavor::None => false,
            YieldFavor::DeboosterV1 | YieldFavor::DeboosterV2 => self.push_back(eevdf, yielder, target),
            YieldFavor::LagCredit => {
                let entity = self.threads[target].entity;
                eevdf.credit_path(&mut self.hierarchy, entity, self.favor.credit_pct)
            }
        }
    }

    /// After a credit: ends the protection of the yielder from being replaced.
    pub(super) fn insist(&mut self, pcpu: u32, step: &mut Step<'_>) {
        if self.favor.rule != YieldFavor::LagCredit || !self.interval_over(pcpu) {
            return;
        }
        let mut at = self.rq(pcpu).curr.map(|curr| self.threads[curr].entity);
        while let Some(id) = at {
            self.hierarchy.entities[id].protected = None;
            at = self.hierarchy.parent(id);
        }
        self.resched(pcpu, step);
    }

    /// Returns whether the interval of `pcpu` is over, and then starts the next one.
    fn interval_over(&mut self, pcpu: u32) -> bool {
        let (now, interval) = (self.now(), self.favor.interval_ns);
        let unlimited = self.hierarchy.has(Fault::FavorUnlimited);
        let restarts = self.favor.rule == YieldFavor::DeboosterV1;
        let begun = &mut self.rq_mut(pcpu).favors.begun;
        let over = begun.is_none_or(|begun| now - begun > interval) || unlimited;
        if over || restarts {
            *begun = Some(now);
        }
        over
    }

    /// Pushes `yielder` back for `target`, which waits on the same pCPU, on the level where they meet.
    fn push_back(&mut self, eevdf: Eevdf, yielder: TaskId, target: TaskId) -> bool {
        let pcpu = self.threads[yielder].pcpu;
        if !self.interval_over(pcpu) {
            return false;
        }
        let (from, to) = (self.threads[yielder].entity, self.threads[target].entity);
        let (from, to) = self.hierarchy.siblings(from, to);
        let queue = self.hierarchy.entities[from].queue;
        self.hierarchy.account(queue);
        let slice = scaled(eevdf.slice, self.hierarchy.entities[from].weight);
        let ahead = self.hierarchy.entities[to].vruntime;
        let gap = (ahead.wrapping_sub(self.hierarchy.entities[from].vruntime) as i64).max(0) as u64;
        let mut push = slice + gap + gap / 10;
        if self.is_reverse(pcpu, yielder, target) {
            push = push.min(gap.max(slice));
        }
        let queued = match self.favor.rule {
            YieldFavor::DeboosterV1 => self.hierarchy.queues[queue].nr,
            _ => self.hierarchy.queues[queue].runnable,
        };
        let push = push.clamp(slice, slice * most_halves(queued) / 2);
        // The entity runs, so it is in no timeline.
        let entity = &mut self.hierarchy.entities[from];
        entity.vruntime = entity.vruntime.wrapping_add(push);
        entity.deadline = entity.vruntime.wrapping_add(slice);
        true
    }

    /// Returns whether `target` was recently pushed back for `yielder`. Records the present direction.
    fn is_reverse(&mut self, pcpu: u32, yielder: TaskId, target: TaskId) -> bool {
        let (now, within) = (self.now(), self.favor.reverse_ns);
        let forgets = self.hierarchy.has(Fault::PairForgotten);
        let last = self.rq_mut(pcpu).favors.pair.replace((yielder, target, now));
        let reverse = |(from, to, at): (TaskId, TaskId, u64)| (from, to) == (target, yielder) && now - at <= within;
        last.is_some_and(reverse) && !forgets
    }
}

impl Eevdf {
    /// Makes `task` and its ancestors eligible, with lag to spare. Returns whether any was not eligible.
    fn credit_path(self, on: &mut Hierarchy, task: EntityId, credit_pct: u64) -> bool {
        let mut credited = false;
        let mut at = Some(task);
        while let Some(id) = at {
            let queue = on.entities[id].queue;
            on.account(queue);
            if !self.eligible(on, queue, id) {
                self.credit(on, queue, id, credit_pct);
                credited = true;
            }
            at = on.parent(id);
        }
        credited
    }

    /// Moves `id` of `queue`, which is not alone there, to the place of its credited lag.
    fn credit(self, on: &mut Hierarchy, queue: QueueId, id: EntityId, credit_pct: u64) {
        let runs = on.queues[queue].curr == Some(id);
        if !runs {
            on.tree_remove(queue, id);
        }
        let others = if runs {
            on.queues[queue].average
        } else {
            on.averaged(queue)
        };
        let (weight, old) = (on.entities[id].weight, on.entities[id].vruntime);
        let step = scaled(self.slice, weight) as i64 * credit_pct as i64 / 100;
        let mut lag = step * i64::from(on.queues[queue].nr);
        if !on.has(Fault::CreditUnbounded) {
            lag = lag.min(self.lag_limit(weight));
        }
        // Its arrival moves the average toward it, as when a thread is placed.
        let total = i128::from(others.weight + weight);
        let ahead = i128::from(lag) * total / i128::from(others.weight.max(1));
        let entity = &mut on.entities[id];
        if let Some(average) = others.value() {
            entity.vruntime = average.wrapping_sub(ahead as u64);
        }
        if runs {
            // It stays in place, with the rest of its slice and its protection.
            let moved = entity.vruntime.wrapping_sub(old);
            entity.deadline = entity.deadline.wrapping_add(moved);
            entity.protected = entity.protected.map(|until| until.wrapping_add(moved));
        } else {
            entity.deadline = entity.vruntime.wrapping_add(scaled(self.slice, weight));
            on.tree_insert(queue, id);
        }
    }
}
