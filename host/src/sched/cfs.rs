//! The completely fair scheduler as of Linux 3.3 (§4.2).
//!
//! Slices end on ticks only; a period in which everyone runs once; credit for sleepers; buddies bounded by fairness.

use super::entity::{EntityId, QueueId};
use super::hierarchy::Hierarchy;
use super::policy::{Arrival, Policy, SliceEnd};
use super::timeline::later;
use super::weight::{mul_div, scaled};
use crate::config::HostConfig;

/// Parameters, scaled to the number of pCPUs. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cfs {
    pub(crate) latency: u64,
    pub(crate) min_granularity: u64,
    pub(crate) wakeup_granularity: u64,
    /// Threads that fit into one latency period.
    pub(crate) nr_latency: u64,
    gentle_fair_sleepers: bool,
    start_debit: bool,
}

impl Cfs {
    pub(crate) fn new(config: &HostConfig, pcpus: u32) -> Cfs {
        let factor = if config.scale_by_pcpus {
            1 + u64::from(pcpus.min(8).ilog2())
        } else {
            1
        };
        let latency = config.latency_ns * factor;
        let min_granularity = config.min_granularity_ns * factor;
        Cfs {
            latency,
            min_granularity,
            wakeup_granularity: config.wakeup_granularity_ns * factor,
            nr_latency: latency.div_ceil(min_granularity),
            gentle_fair_sleepers: config.features.gentle_fair_sleepers,
            start_debit: config.features.start_debit,
        }
    }

    /// The wall time that `entity` should run before others get their turn: its part of the period at every level.
    pub(crate) fn slice(&self, on: &Hierarchy, entity: EntityId) -> u64 {
        let first = on.entity(entity);
        let runnable = u64::from(on.queue(first.queue).nr) + u64::from(!first.on_rq);
        let mut slice = if runnable > self.nr_latency {
            runnable * self.min_granularity
        } else {
            self.latency
        };
        for id in on.path(entity) {
            let at = on.entity(id);
            let load = on.queue(at.queue).load + if at.on_rq { 0 } else { at.weight };
            slice = mul_div(slice, at.weight, load);
        }
        slice
    }

    /// `slice` in virtual time.
    fn virtual_slice(&self, on: &Hierarchy, entity: EntityId) -> u64 {
        scaled(self.slice(on, entity), on.entity(entity).weight)
    }

    /// Whether `candidate` may run although `left` deserves it more.
    fn fair_enough(&self, on: &Hierarchy, candidate: EntityId, left: EntityId) -> bool {
        !self.preempts(on, candidate, left)
    }
}

impl Policy for Cfs {
    fn place(self, on: &Hierarchy, queue: QueueId, entity: EntityId, arrival: Arrival) -> u64 {
        let min = on.queue(queue).min_vruntime;
        let start = match arrival {
            Arrival::New if self.start_debit => min.wrapping_add(self.virtual_slice(on, entity)),
            Arrival::New | Arrival::Moved => min,
            Arrival::Woken | Arrival::GroupWoken => {
                let credit = if self.gentle_fair_sleepers {
                    self.latency / 2
                } else {
                    self.latency
                };
                min.wrapping_sub(credit)
            }
        };
        later(on.entity(entity).vruntime, start)
    }

    fn pick(self, on: &Hierarchy, queue: QueueId) -> Option<EntityId> {
        let at = on.queue(queue);
        let left = at.timeline.leftmost()?;
        let mut pick = left;
        if at.skip == Some(left)
            && let Some(second) = at.timeline.second()
            && self.fair_enough(on, second, left)
        {
            pick = second;
        }
        // Next comes last of the three and so wins: a yielder and its target can share an ancestor, which is then both
        // skip and next.
        for buddy in [at.last, at.next].into_iter().flatten() {
            if self.fair_enough(on, buddy, left) {
                pick = buddy;
            }
        }
        Some(pick)
    }

    fn tick(self, on: &Hierarchy, queue: QueueId, curr: EntityId) -> Option<SliceEnd> {
        let slice = self.slice(on, curr);
        let entity = on.entity(curr);
        let ran = entity.sum_exec - entity.prev_sum_exec;
        if ran > slice {
            return Some(SliceEnd::Spent);
        }
        if ran < self.min_granularity {
            return None;
        }
        let least = on.queue(queue).timeline.least()?;
        let ahead = entity.vruntime.wrapping_sub(least) as i64;
        (ahead > slice as i64).then_some(SliceEnd::Unfair)
    }

    fn preempts(self, on: &Hierarchy, curr: EntityId, woken: EntityId) -> bool {
        let ahead = on.entity(curr).vruntime.wrapping_sub(on.entity(woken).vruntime) as i64;
        let granularity = scaled(self.wakeup_granularity, on.entity(woken).weight);
        ahead > 0 && ahead > granularity as i64
    }
}
