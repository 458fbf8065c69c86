//! Task groups: how a group's shares divide among the pCPUs on which it has threads (§4.1, 2.6.38 to 3.7).
//!
//! On each pCPU the group's entity weighs `shares * local load / total load`, where the total is the sum of averages that
//! each pCPU contributes now and then: exact sums would need every pCPU's queue at every enqueue.

use super::entity::{EntityId, QueueId};
use super::hierarchy::Hierarchy;
use super::weight::mul_div;
use crate::boundary::GroupId;

/// Least weight of a group's entity, and least `cpu.shares`.
pub(crate) const MIN_SHARES: u64 = 2;
/// Greatest `cpu.shares`.
pub(crate) const MAX_SHARES: u64 = 1 << 18;

impl Hierarchy {
    /// Total load of the group of `queue`, with what `queue` has now in place of what it last contributed.
    fn group_load(&self, queue: QueueId) -> u64 {
        let at = self.queue(queue);
        self.groups[at.group.0 as usize].load - at.share.contribution + at.load
    }

    /// What the entity of group queue `queue` should weigh now.
    fn group_weight(&self, queue: QueueId) -> u64 {
        let at = self.queue(queue);
        let shares = self.groups[at.group.0 as usize].shares;
        mul_div(shares, at.load, self.group_load(queue)).clamp(MIN_SHARES, shares)
    }

    /// Gives the entity of `queue` the weight that its load deserves. Nothing for a root queue.
    pub(crate) fn update_shares(&mut self, queue: QueueId) {
        let Some(id) = self.queue(queue).entity else { return };
        let weight = self.group_weight(queue);
        let (old, parent, on_rq) = {
            let entity = self.entity(id);
            (entity.weight, entity.queue, entity.on_rq)
        };
        if weight == old {
            return;
        }
        if on_rq {
            if self.queue(parent).curr == Some(id) {
                self.account(parent);
            }
            let at = self.queue_mut(parent);
            at.load = at.load - old + weight;
        }
        self.entity_mut(id).weight = weight;
    }

    /// Brings the history of `queue`'s load up to now, and passes it on to the group if it is a window old (or `publish`).
    pub(crate) fn update_share_history(&mut self, queue: QueueId, publish: bool) {
        let (now, window) = (self.now, self.shares_window_ns);
        let at = &mut self.queues[queue.0 as usize];
        if at.entity.is_none() {
            return;
        }
        let load = at.load;
        let share = &mut at.share;
        let mut delta = now - share.stamp;
        if share.stamp > share.last && now - share.last > 4 * window {
            // Long without load: history is over.
            share.period = 0;
            share.load_sum = 0;
            delta = window - 1;
        }
        share.stamp = now;
        share.unaccounted = 0;
        share.period += delta;
        if load > 0 {
            share.last = now;
            share.load_sum += delta * load;
        }
        if publish || share.period > window || share.period == 0 {
            let average = share.load_sum / (share.period + 1);
            let old = share.contribution;
            if publish || average.abs_diff(old) > old / 8 {
                share.contribution = average;
                let group = &mut self.groups[at.group.0 as usize];
                group.load = group.load - old + average;
            }
        }
        let share = &mut self.queues[queue.0 as usize].share;
        while share.period > window {
            share.period /= 2;
            share.load_sum /= 2;
        }
    }

    /// Refreshes the shares of all group queues of `pcpu`, and forgets those without load.
    pub(crate) fn refresh_shares(&mut self, pcpu: u32) {
        let mut at = 0;
        while let Some(&queue) = self.leaves[pcpu as usize].get(at) {
            self.update_share_history(queue, true);
            self.update_shares(queue);
            let leaf = self.queue_mut(queue);
            let idle = leaf.nr == 0 && leaf.share.load_sum == 0;
            if idle && leaf.entity.is_some() {
                leaf.listed = false;
                self.leaves[pcpu as usize].swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The part of its pCPU's load that `queue` as a whole stands for.
    pub(crate) fn hierarchical_load(&self, queue: QueueId) -> u64 {
        match self.queue(queue).entity {
            None => self.queue(queue).load,
            Some(entity) => {
                let parent = self.entity(entity).queue;
                let above = self.hierarchical_load(parent);
                mul_div(above, self.entity(entity).weight, self.queue(parent).load + 1)
            }
        }
    }

    /// By how much the load of `pcpu` changes when weight `local` is added to `group` there while the group as a whole
    /// grows by `whole` (both negative when it leaves).
    pub(crate) fn effective_load(&self, group: GroupId, pcpu: u32, local: i64, whole: i64) -> i64 {
        let mut local = local;
        let mut whole = whole;
        let mut group = group;
        while let Some(parent) = self.groups[group.0 as usize].parent {
            let shares = self.groups[group.0 as usize].shares as i64;
            let (load, total, weight) = match self.groups[group.0 as usize].queues[pcpu as usize] {
                Some(queue) => {
                    let entity: Option<EntityId> = self.queue(queue).entity;
                    let weight = entity.map_or(0, |entity| self.entity(entity).weight);
                    (self.queue(queue).load, self.group_load(queue), weight)
                }
                // Never had a thread here: an empty queue.
                None => (0, self.groups[group.0 as usize].load, MIN_SHARES),
            };
            let total = total as i64 + whole;
            let load = load as i64 + local;
            let new = if total > 0 && load < total {
                (i128::from(load) * i128::from(shares) / i128::from(total)) as i64
            } else {
                shares
            };
            local = new.max(MIN_SHARES as i64) - weight as i64;
            whole = 0;
            group = parent;
        }
        local
    }
}
