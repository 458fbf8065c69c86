//! Task groups: how a group's shares divide among the pCPUs on which it has threads (docs/spec/host.md, "Weights and
//! groups").
//!
//! On each pCPU the group's entity weighs `shares * local load / total load`, where the total is the sum of averages
//! that each pCPU contributes now and then: exact sums would need every pCPU's queue at every enqueue. Until 2.6.37 the
//! sums were exact, and weights old: a walk over all pCPUs made them again, at most so often. Here each pCPU does that
//! for its own queues, when the same time has passed for it: no pCPU looks at all others.

use super::config::ShareRule;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::weight::{MIN_SHARES, NICE_0, mul_div};
use crate::boundary::GroupId;
use crate::error::{ConfigError, in_range};

/// Greatest `cpu.shares`.
pub(crate) const MAX_SHARES: u64 = 1 << 18;
/// The most levels of groups below the root. The kernel sets no limit. Deeper nesting is unusual, and every event
/// climbs all levels.
pub const GROUP_DEPTH_MAX: u32 = 32;

/// Returns whether a contribution must be made again because the average differs from it by more than a 64th.
fn changed(contribution: u64, average: u64) -> bool {
    average.abs_diff(contribution) > contribution / 64
}

impl Hierarchy {
    /// Checks that a group may have `shares` and stand below `parent`.
    pub(crate) fn check_place(&self, parent: GroupId, shares: u64) -> Result<(), ConfigError> {
        in_range("shares", shares, MIN_SHARES as i64, MAX_SHARES as i64)?;
        self.check_depth(parent, 1)
    }

    /// Checks that `levels` more levels of groups may stand below `parent`.
    pub(crate) fn check_depth(&self, parent: GroupId, levels: usize) -> Result<(), ConfigError> {
        // The root is not counted as a level.
        let above = core::iter::successors(Some(parent), |&at| self.groups[at].parent).count() - 1;
        in_range("levels of task groups", above + levels, 1, GROUP_DEPTH_MAX.into())
    }

    /// Returns the total load of the group of `queue`, with the present load of `queue` in place of its last
    /// contribution.
    fn group_load(&self, queue: QueueId) -> u64 {
        let at = &self.queues[queue];
        self.groups[at.group].load - at.share.contribution + at.load
    }

    /// Returns the weight that the entity of group queue `queue` should have now.
    fn group_weight(&self, queue: QueueId) -> u64 {
        let at = &self.queues[queue];
        let shares = self.groups[at.group].shares * self.multiple(at.group);
        let load = match self.share_rule {
            // Counts one thread, so that the first one that comes need not wait for the next walk.
            ShareRule::Walk if at.load == 0 => NICE_0,
            _ => at.load,
        };
        mul_div(shares, load, self.group_load(queue)).clamp(MIN_SHARES, shares)
    }

    /// Returns by how much the shares of `group` are multiplied: under [`ShareRule::Concurrent`] by its threads, at
    /// most the number of pCPUs. Linux rounds the number of threads down.
    pub(super) fn multiple(&self, group: GroupId) -> u64 {
        if self.share_rule != ShareRule::Concurrent {
            return 1;
        }
        (self.groups[group].runnable / NICE_0).clamp(1, self.leaves.len() as u64)
    }

    /// Replaces weight `old` by `new` in the load of `queue`.
    pub(super) fn change_load(&mut self, queue: QueueId, old: u64, new: u64) {
        let at = &mut self.queues[queue];
        at.load = at.load - old + new;
        let load = at.load;
        if self.share_rule == ShareRule::Walk && at.entity.is_some() {
            self.contribute(queue, load);
        }
    }

    /// Sets the weight of the entity of `queue` by its load, after an event. Does nothing for a root queue.
    pub(crate) fn update_shares(&mut self, queue: QueueId) {
        if self.share_rule != ShareRule::Walk {
            self.renew_shares(queue);
        }
    }

    fn renew_shares(&mut self, queue: QueueId) {
        let Some(id) = self.queues[queue].entity else { return };
        if self.queues[queue].quota.throttles > 0 {
            return;
        }
        let weight = self.group_weight(queue);
        let (old, parent, on_rq) = {
            let entity = &self.entities[id];
            (entity.weight, entity.queue, entity.on_rq)
        };
        if weight == old {
            return;
        }
        if !on_rq {
            let entity = &mut self.entities[id];
            entity.vlag = (i128::from(entity.vlag) * i128::from(old) / i128::from(weight)) as i64;
            entity.weight = weight;
            return;
        }
        let runs = self.queues[parent].curr == Some(id);
        if runs {
            self.account(parent);
        }
        if self.tracks {
            self.track(parent);
            let now = self.now;
            self.entities[id].tracked.advance(now, old);
        }
        let policy = self.policy;
        if policy.averages() {
            let average = self.average(parent);
            if !runs {
                self.tree_remove(parent, id);
            }
            policy.reweigh(self, average, id, weight);
            self.entities[id].weight = weight;
            if !runs {
                self.tree_insert(parent, id);
            }
        } else {
            self.entities[id].weight = weight;
        }
        self.change_load(parent, old, weight);
    }

    /// Updates the shares of `queue`, which runs on the ticking pCPU, if it is time.
    pub(super) fn tick_shares(&mut self, queue: QueueId) {
        let due = match self.share_rule {
            ShareRule::Walk => self.now - self.queues[queue].share.stamp >= self.shares_window_ns,
            ShareRule::Window => self.queues[queue].share.unaccounted >= self.shares_window_ns,
            ShareRule::Geometric | ShareRule::Concurrent => true,
        };
        if due {
            self.update_share_history(queue, false);
            self.renew_shares(queue);
            if self.share_rule == ShareRule::Walk {
                self.queues[queue].share.stamp = self.now;
            }
        }
    }

    /// Updates the history of the load of `queue`. Passes it on to the group if it changed enough, or if `publish`.
    pub(crate) fn update_share_history(&mut self, queue: QueueId, publish: bool) {
        if self.queues[queue].entity.is_none() {
            return;
        }
        match self.share_rule {
            ShareRule::Walk => {}
            ShareRule::Window => self.update_window(queue, publish),
            ShareRule::Geometric | ShareRule::Concurrent => {
                let now = self.now;
                let at = &mut self.queues[queue];
                at.share.tracked.advance(now, at.load);
                let mut runnable = 0;
                if self.share_rule == ShareRule::Concurrent {
                    at.share.runnable.advance(now, u64::from(at.runnable) * NICE_0);
                    runnable = at.share.runnable.load();
                }
                let average = at.share.tracked.load();
                if publish
                    || changed(at.share.contribution, average)
                    || changed(at.share.runnable_contribution, runnable)
                {
                    self.contribute(queue, average);
                    self.contribute_runnable(queue, runnable);
                }
            }
        }
    }

    /// Sets the contribution of `queue` to its group's total to `load`.
    fn contribute(&mut self, queue: QueueId, load: u64) {
        let at = &mut self.queues[queue];
        let group = &mut self.groups[at.group];
        group.load = group.load - at.share.contribution + load;
        at.share.contribution = load;
    }

    /// Sets the contribution of `queue` to its group's number of runnable threads, times 1024.
    fn contribute_runnable(&mut self, queue: QueueId, runnable: u64) {
        let at = &mut self.queues[queue];
        let group = &mut self.groups[at.group];
        group.runnable = group.runnable - at.share.runnable_contribution + runnable;
        at.share.runnable_contribution = runnable;
    }

    fn update_window(&mut self, queue: QueueId, publish: bool) {
        let (now, window) = (self.now, self.shares_window_ns);
        let at = &mut self.queues[queue];
        let load = at.load;
        let share = &mut at.share;
        let mut delta = now - share.stamp;
        if share.stamp > share.last && now - share.last > 4 * window {
            // After a long time without load the history is discarded.
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
        if publish || share.period > window {
            let average = share.load_sum / (share.period + 1);
            let old = share.contribution;
            if publish || average.abs_diff(old) > old / 8 {
                self.contribute(queue, average);
            }
        }
        let share = &mut self.queues[queue].share;
        while share.period > window {
            share.period /= 2;
            share.load_sum /= 2;
        }
    }

    /// Refreshes the shares of all group queues of `pcpu`, and drops those without load from its list.
    pub(crate) fn refresh_shares(&mut self, pcpu: u32) {
        let mut at = 0;
        while let Some(&queue) = self.leaves[pcpu as usize].get(at) {
            self.update_share_history(queue, true);
            self.renew_shares(queue);
            let leaf = &mut self.queues[queue];
            let idle = leaf.nr == 0 && leaf.share.load_sum == 0 && leaf.share.tracked.load() == 0;
            if idle && leaf.entity.is_some() {
                leaf.listed = false;
                self.leaves[pcpu as usize].swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Returns the part of its pCPU's load that `queue` represents.
    pub(crate) fn hierarchical_load(&self, queue: QueueId) -> u64 {
        match self.queues[queue].entity {
            None => self.queue_load(queue),
            Some(entity) => {
                let parent = self.entities[entity].queue;
                let above = self.hierarchical_load(parent);
                mul_div(above, self.entity_load(entity), self.queue_load(parent) + 1)
            }
        }
    }

    /// Returns the contribution of a thread's entity to the load of its pCPU (`task_h_load`).
    pub(crate) fn hierarchical_task_load(&self, entity: EntityId) -> u64 {
        let queue = self.entities[entity].queue;
        let above = self.hierarchical_load(queue);
        mul_div(above, self.entity_load(entity), self.queue_load(queue) + 1)
    }

    /// Returns the load of `queue` for balancing: the present load, or the tracked one.
    pub(crate) fn queue_load(&self, queue: QueueId) -> u64 {
        let at = &self.queues[queue];
        if !self.tracks {
            return at.load;
        }
        let mut tracked = at.tracked;
        if self.sleepers_count {
            // No tick of an idle pCPU lets its sleepers' load decay.
            tracked.advance(self.now, at.load);
        }
        tracked.load()
    }

    /// Returns the contribution of `entity` to that load.
    pub(crate) fn entity_load(&self, entity: EntityId) -> u64 {
        let at = &self.entities[entity];
        if !self.tracks {
            return at.weight;
        }
        let mut tracked = at.tracked;
        tracked.advance(self.now, if at.on_rq { at.weight } else { 0 });
        tracked.load()
    }

    /// Returns the change of the load of `pcpu` if weight `local` is added to `group` there and the whole group grows
    /// by `whole`. Both are negative when it leaves.
    pub(crate) fn effective_load(&self, group: GroupId, pcpu: u32, local: i64, whole: i64) -> i64 {
        let mut local = local;
        let mut whole = whole;
        let mut group = group;
        while let Some(parent) = self.groups[group].parent {
            let shares = self.groups[group].shares as i64;
            let (load, total, weight) = match self.groups[group].queues[pcpu as usize] {
                Some(queue) => {
                    let entity: Option<EntityId> = self.queues[queue].entity;
                    let weight = entity.map_or(0, |entity| self.entities[entity].weight);
                    (self.queues[queue].load, self.group_load(queue), weight)
                }
                // The group has never had a thread here, so its queue is empty.
                None => (0, self.groups[group].load, MIN_SHARES),
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
