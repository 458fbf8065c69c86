//! The completely fair scheduler, Linux 2.6.37 to 4.12 (docs/spec/host.md, "CFS").
//!
//! Each thread runs once in a period, and slices end on ticks only. Sleepers get credit. Buddies are bounded by
//! fairness.

use super::config::{SchedConfig, SchedulerKind, YieldRule};
use super::entity::Mark;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::policy::{Arrival, SliceEnd};
use super::timeline::{before, later};
use super::weight::{mul_div, scaled};

/// Parameters, scaled to the number of pCPUs. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cfs {
    pub(crate) latency: u64,
    pub(crate) min_granularity: u64,
    pub(crate) wakeup_granularity: u64,
    /// The number of threads that fit into one latency period.
    pub(crate) nr_latency: u64,
    gentle_fair_sleepers: bool,
    start_debit: bool,
    yields: YieldRule,
    /// The last buddy takes precedence over the next one (2.6.37), to keep caches warm. Directed yield needs the
    /// reverse order: a yielder and its target can share an ancestor, which is then both skip and next.
    last_wins: bool,
}

impl Cfs {
    pub(crate) fn new(config: &SchedConfig, pcpus: u32) -> Cfs {
        let factor = config.factor(pcpus);
        let latency = config.latency_ns * factor;
        let min_granularity = config.min_granularity_ns * factor;
        Cfs {
            latency,
            min_granularity,
            wakeup_granularity: config.wakeup_granularity_ns * factor,
            nr_latency: latency.div_ceil(min_granularity),
            gentle_fair_sleepers: config.features.gentle_fair_sleepers,
            start_debit: config.features.start_debit,
            yields: config.yields,
            last_wins: config.kind == SchedulerKind::Cfs2637,
        }
    }

    /// Returns the wall time that `entity` should run before others get their turn: its share of the period at every
    /// level.
    pub(crate) fn slice(&self, on: &Hierarchy, entity: EntityId) -> u64 {
        let first = &on.entities[entity];
        let runnable = u64::from(on.queues[first.queue].nr) + u64::from(!first.on_rq);
        let mut slice = if runnable > self.nr_latency {
            runnable * self.min_granularity
        } else {
            self.latency
        };
        for id in on.path(entity) {
            let at = &on.entities[id];
            let load = on.queues[at.queue].load + if at.on_rq { 0 } else { at.weight };
            slice = mul_div(slice, at.weight, load);
        }
        slice
    }

    /// Returns the slice of `entity` in virtual time.
    fn virtual_slice(&self, on: &Hierarchy, entity: EntityId) -> u64 {
        scaled(self.slice(on, entity), on.entities[entity].weight)
    }

    /// Returns whether `candidate` may run although `left` is more entitled to it.
    fn fair_enough(&self, on: &Hierarchy, candidate: EntityId, left: EntityId) -> bool {
        !self.preempts(on, candidate, left)
    }

    pub(super) fn fork(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId) {
        // A child starts at the virtual runtime of its parent, or one slice behind the others if that is later.
        let at = &on.queues[queue];
        let parent = at.curr.map_or(at.min_vruntime, |curr| on.entities[curr].vruntime);
        let mut start = at.min_vruntime;
        if self.start_debit {
            start = start.wrapping_add(self.virtual_slice(on, entity));
        }
        on.entities[entity].vruntime = later(parent, start);
    }

    pub(super) fn arrive(self, on: &mut Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) {
        if matches!(arrival, Arrival::New | Arrival::Moved) {
            return;
        }
        let credit = if self.gentle_fair_sleepers {
            self.latency / 2
        } else {
            self.latency
        };
        let start = on.queues[queue].min_vruntime.wrapping_sub(credit);
        let entity = &mut on.entities[entity];
        entity.vruntime = later(entity.vruntime, start);
    }

    pub(super) fn pick(self, on: &Hierarchy, queue: QueueId) -> Option<EntityId> {
        let at = &on.queues[queue];
        let left = at.timeline.leftmost()?;
        let mut pick = left;
        if at.skip == Some(left)
            && let Some(second) = at.timeline.second()
            && self.fair_enough(on, second, left)
        {
            pick = second;
        }
        let buddies = if self.last_wins {
            [at.next, at.last]
        } else {
            [at.last, at.next]
        };
        for buddy in buddies.into_iter().flatten() {
            if self.fair_enough(on, buddy, left) {
                pick = buddy;
            }
        }
        Some(pick)
    }

    pub(super) fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd> {
        let slice = self.slice(on, curr);
        let entity = &on.entities[curr];
        let ran = entity.sum_exec - entity.prev_sum_exec;
        if ran > slice {
            return Some(SliceEnd::Spent);
        }
        if ran < self.min_granularity {
            return None;
        }
        let least = on.queues[queue].timeline.least()?;
        let ahead = entity.vruntime.wrapping_sub(least) as i64;
        (ahead > slice as i64).then_some(SliceEnd::Unfair)
    }

    pub(super) fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool {
        let ahead = on.entities[curr].vruntime.wrapping_sub(on.entities[woken].vruntime) as i64;
        let granularity = scaled(self.wakeup_granularity, on.entities[woken].weight);
        ahead > 0 && ahead > granularity as i64
    }

    pub(super) fn give_way(self, on: &mut Hierarchy, entity: EntityId, alone: bool) {
        let queue = on.entities[entity].queue;
        if !self.yields.is_of_own_group() {
            if !alone {
                on.clear_buddies(entity);
                on.account(queue);
                on.mark(entity, Mark::Skip);
            }
            return;
        }
        // The thread is alone in its group's queue, so the yield ends here whatever waits in other groups.
        if on.queues[queue].nr == 1 {
            return;
        }
        on.clear_buddies(entity);
        on.account(queue);
        if self.yields == YieldRule::OwnGroupCompat
            && let Some(rightmost) = on.queues[queue].timeline.greatest()
            && !before(rightmost, on.entities[entity].vruntime)
        {
            on.entities[entity].vruntime = rightmost.wrapping_add(1);
        }
    }
}
