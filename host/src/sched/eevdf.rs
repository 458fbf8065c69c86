//! Earliest eligible virtual deadline first, Linux 6.6 and later (docs/spec/host.md, "EEVDF").
//!
//! The *lag* of an entity is the queue's average virtual runtime less its own. An entity without negative lag is
//! eligible. Of these the one with the earliest deadline runs. A deadline is one slice of virtual time after the last
//! one was met.
//!
//! Not modeled: slices of a thread's own, and the protection by a minimum slice that came after 6.12. Every thread has
//! the base slice, so a shorter slice cannot cancel protection either.

use super::config::{SchedConfig, YieldRule};
use super::fault::Fault;
use super::features::Features;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::policy::{Arrival, Departure};
use super::timeline::before;
use super::weight::{NICE_0, mul_div, scaled};

/// Parameters. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eevdf {
    /// The slice of every thread.
    pub(crate) slice: u64,
    tick: u64,
    pub(crate) features: Features,
    yields: YieldRule,
}

impl Eevdf {
    pub(crate) fn new(config: &SchedConfig, pcpus: u32, tick: u64) -> Eevdf {
        Eevdf {
            slice: config.base_slice_ns * config.factor(pcpus),
            tick,
            features: config.features,
            yields: config.yields,
        }
    }

    /// Returns the largest lag that an entity of `weight` keeps. Virtual nanoseconds.
    pub(crate) fn lag_limit(self, weight: u64) -> i64 {
        scaled(self.slice + self.tick, weight) as i64
    }

    /// Returns the lag of `entity` of `queue`, within the limit. Virtual nanoseconds.
    pub(crate) fn lag(self, on: &Hierarchy, queue: QueueId, entity: EntityId) -> i64 {
        let limit = self.lag_limit(on.entities[entity].weight);
        let lag = on.average(queue).wrapping_sub(on.entities[entity].vruntime) as i64;
        lag.clamp(-limit, limit)
    }

    /// Returns whether `entity` of `queue` has received no more than its share.
    pub(crate) fn eligible(self, on: &Hierarchy, queue: QueueId, entity: EntityId) -> bool {
        on.averaged(queue).reaches(on.entities[entity].vruntime)
    }

    /// Returns whether `curr` keeps the CPU while it is eligible: until the deadline of its pick, or until its deadline
    /// changes.
    fn protects(self, on: &Hierarchy, curr: EntityId) -> bool {
        let entity = &on.entities[curr];
        let Some(until) = entity.protected.filter(|_| self.features.run_to_parity) else {
            return false;
        };
        if self.features.protection_ends {
            before(entity.vruntime, until)
        } else {
            until == entity.deadline
        }
    }

    /// Returns the best entity of `queue`. `curr` counts, in the timeline or not.
    fn best(self, on: &Hierarchy, queue: QueueId, curr: Option<EntityId>) -> Option<EntityId> {
        let at = &on.queues[queue];
        let all = on.averaged(queue);
        let curr = curr.filter(|&curr| on.entities[curr].on_rq);
        let eligible = curr.filter(|&curr| all.reaches(on.entities[curr].vruntime));
        if let Some(curr) = eligible.filter(|&curr| self.protects(on, curr)) {
            return Some(curr);
        }
        let mut best = None;
        // In the order of virtual runtimes the eligible entities come first.
        for (vruntime, id) in at.timeline.iter() {
            if !all.reaches(vruntime) {
                break;
            }
            let sooner = |best: EntityId| before(on.entities[id].deadline, on.entities[best].deadline);
            if Some(id) != curr && best.is_none_or(sooner) {
                best = Some(id);
            }
        }
        // `pick_eevdf`: the running entity gives way to another with the same deadline.
        if let Some(curr) = eligible
            && best.is_none_or(|best| before(on.entities[curr].deadline, on.entities[best].deadline))
        {
            best = Some(curr);
        }
        best.or(at.timeline.leftmost()).or(curr)
    }

    pub(super) fn fork(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId) {
        let vruntime = on.average(queue);
        let entity = &mut on.entities[entity];
        entity.vruntime = vruntime;
        entity.vlag = 0;
    }

    pub(super) fn arrive(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) {
        let average = on.average(queue);
        let others = on.averaged(queue).weight;
        let (weight, vlag) = (on.entities[entity].weight, on.entities[entity].vlag);
        let mut lag = 0;
        if self.features.place_lag && others > 0 && !on.has(Fault::LagLost) {
            // Its arrival moves the average toward it. The lag is scaled so that it is the old one afterwards.
            lag = (i128::from(vlag) * i128::from(others + weight) / i128::from(others)) as i64;
        }
        let mut slice = scaled(self.slice, weight);
        if arrival == Arrival::New {
            slice /= 2;
        }
        let entity = &mut on.entities[entity];
        entity.vruntime = average.wrapping_sub(lag as u64);
        if core::mem::take(&mut entity.deadline_is_relative) {
            slice = entity.deadline;
        }
        entity.deadline = entity.vruntime.wrapping_add(slice);
    }

    pub(super) fn leave(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, departure: Departure) -> bool {
        let delays = self.features.delay_dequeue && departure == Departure::Sleep && !on.entities[entity].delayed;
        if delays && !self.eligible(on, queue, entity) {
            return false;
        }
        let mut lag = self.lag(on, queue, entity);
        let relative = self.features.relative_deadline && departure == Departure::Move;
        let zero = self.features.delay_zero;
        let at = &mut on.entities[entity];
        if core::mem::take(&mut at.delayed) && zero {
            lag = lag.min(0);
        }
        at.vlag = lag;
        if relative {
            at.deadline = at.deadline.wrapping_sub(at.vruntime);
            at.deadline_is_relative = true;
        }
        true
    }

    pub(super) fn charged(self, on: &mut Hierarchy, queue: QueueId, curr: EntityId) -> bool {
        let others = on.queues[queue].nr > 1;
        let compares = self.features.protection_ends && !self.protects(on, curr);
        let entity = &mut on.entities[curr];
        let over = !before(entity.vruntime, entity.deadline);
        if over {
            entity.deadline = entity.vruntime.wrapping_add(scaled(self.slice, entity.weight));
        }
        others && (over || compares)
    }

    /// Returns the time that `curr` may still run until its deadline, if it was charged at this time. Nanoseconds.
    pub(super) fn rest(self, on: &Hierarchy, curr: EntityId) -> u64 {
        let entity = &on.entities[curr];
        if !before(entity.vruntime, entity.deadline) {
            return 0;
        }
        let left = entity.deadline.wrapping_sub(entity.vruntime);
        // Rounded up, since charging rounds down.
        mul_div(left, entity.weight, NICE_0) + 1
    }

    pub(super) fn pick(self, on: &Hierarchy, queue: QueueId, prev: Option<EntityId>) -> Option<EntityId> {
        let considers = self.features.pick_buddy || self.features.next_buddy;
        let next = on.queues[queue].next.filter(|_| considers);
        if let Some(next) = next.filter(|&next| self.eligible(on, queue, next)) {
            return Some(next);
        }
        let prev = prev.and_then(|prev| on.path(prev).find(|&at| on.entities[at].queue == queue));
        self.best(on, queue, prev)
    }

    pub(super) fn picked(self, on: &mut Hierarchy, entity: EntityId) {
        let entity = &mut on.entities[entity];
        entity.protected = Some(entity.deadline);
    }

    pub(super) fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool {
        self.best(on, on.entities[curr].queue, Some(curr)) == Some(woken)
    }

    pub(super) fn give_way(self, on: &mut Hierarchy, entity: EntityId, alone: bool) {
        let queue = on.entities[entity].queue;
        let alone = alone || (self.yields.is_of_own_group() && on.queues[queue].nr == 1);
        if alone {
            return;
        }
        on.clear_buddies(entity);
        on.account(queue);
        let forfeits = self.yields == YieldRule::Forfeit;
        if forfeits && !self.eligible(on, queue, entity) {
            return;
        }
        let entity = &mut on.entities[entity];
        if forfeits {
            entity.vruntime = entity.deadline;
        }
        // Only on the thread's own level: above it, its group keeps its place.
        entity.deadline = entity.deadline.wrapping_add(scaled(self.slice, entity.weight));
    }

    pub(super) fn reweigh(self, on: &mut Hierarchy, average: u64, entity: EntityId, weight: u64) {
        // Lag in real time and the rest of the slice stay the same, so the average does not move.
        let entity = &mut on.entities[entity];
        let old = entity.weight;
        let scale = |value: u64| (i128::from(value as i64) * i128::from(old) / i128::from(weight)) as i64 as u64;
        let lag = scale(average.wrapping_sub(entity.vruntime));
        let left = scale(entity.deadline.wrapping_sub(entity.vruntime));
        // The protection follows the deadline.
        let protected = entity.protected.map(|until| scale(until.wrapping_sub(entity.vruntime)));
        entity.vruntime = average.wrapping_sub(lag);
        entity.deadline = entity.vruntime.wrapping_add(left);
        entity.protected = protected.map(|left| entity.vruntime.wrapping_add(left));
    }
}
