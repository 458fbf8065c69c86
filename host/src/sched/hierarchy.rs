//! The hierarchy of entities, queues and groups, and queries about any place in it.
//!
//! What differs between schedulers (placement, picking, slices, preemption) is decided by the
//! [`Rules`].
//!
//! - **Load is the sum**: a queue's `load` and `nr` are the sum over its entities with `on_rq`.
//! - **A child's queue is empty or throttled, or its entity is in the parent.**
//! - **Runnable threads are counted**: a queue's `runnable` counts its threads that are not delayed, and those below
//!   its children that are not throttled.

use alloc::vec;
use alloc::vec::Vec;

use super::average::Average;
use super::config::{SchedConfig, ShareRule};
use super::entity::{Entity, EntityKind, Group, Queue};
#[cfg(test)]
use super::fault::Fault;
use super::ids::{EntityId, QueueId};
use super::policy::Rules;
use super::weight::NICE_0;
use crate::boundary::{GroupId, TaskId};
use crate::ids::IdVec;
use crate::timers::Timer;

/// Shortest interval between recomputations of shares under [`ShareRule::Walk`], before scaling
/// (`sched_shares_ratelimit`).
const SHARES_RATELIMIT_NS: u64 = 250_000;
/// Window over which a group's load on one pCPU is averaged (`sched_shares_window`).
const SHARES_WINDOW_NS: u64 = 10_000_000;

/// All entities, queues and groups.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    pub(crate) entities: IdVec<EntityId, Entity>,
    pub(crate) queues: IdVec<QueueId, Queue>,
    pub(crate) groups: IdVec<GroupId, Group>,
    /// For each pCPU the group queues that have load, or had it recently.
    pub(crate) leaves: Vec<Vec<QueueId>>,
    pub(crate) policy: Rules,
    pub(crate) share_rule: ShareRule,
    pub(crate) shares_window_ns: u64,
    /// Whether loads are tracked.
    pub(crate) tracks: bool,
    /// Whether the load of a queue includes its sleeping threads.
    pub(crate) sleepers_count: bool,
    /// Whether entities that are picked again go on with their slices.
    pub(crate) slice_continues: bool,
    /// The quota that a queue draws at a time.
    pub(crate) quota_slice_ns: u64,
    pub(crate) quota_expires: bool,
    /// pCPUs with two runnable threads or more.
    pub(crate) crowded_pcpus: u32,
    /// pCPUs whose running thread came to the end of its slice between ticks. They are to be rescheduled.
    pub(crate) overdue: Vec<u32>,
    /// Threads whose throttling has changed.
    pub(crate) throttle_changes: Vec<TaskId>,
    /// Timers to be armed.
    pub(crate) timers: Vec<(Timer, u64)>,
    /// The present time. Nanoseconds.
    pub(crate) now: u64,
    #[cfg(test)]
    pub(crate) fault: Option<Fault>,
}

impl Hierarchy {
    pub(crate) fn new(pcpus: u32, policy: Rules, config: &SchedConfig) -> Hierarchy {
        let root = GroupId(0);
        Hierarchy {
            entities: IdVec::new(),
            queues: (0..pcpus).map(|pcpu| Queue::new(pcpu, root, None)).collect(),
            groups: [Group {
                shares: super::weight::NICE_0,
                queues: (0..pcpus).map(|pcpu| Some(QueueId(pcpu))).collect(),
                ..Group::default()
            }]
            .into_iter()
            .collect(),
            leaves: vec![Vec::new(); pcpus as usize],
            policy,
            share_rule: config.shares,
            shares_window_ns: match config.shares {
                ShareRule::Walk => SHARES_RATELIMIT_NS * config.factor(pcpus),
                ShareRule::Window | ShareRule::Geometric | ShareRule::Concurrent => SHARES_WINDOW_NS,
            },
            tracks: config.features.load_tracking,
            sleepers_count: config.features.sleepers_count,
            slice_continues: config.features.slice_continues,
            quota_slice_ns: config.bandwidth_slice_ns,
            quota_expires: config.features.bandwidth_expires,
            crowded_pcpus: 0,
            overdue: Vec::new(),
            throttle_changes: Vec::new(),
            timers: Vec::new(),
            now: 0,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Returns whether a test has planted `fault`.
    #[cfg(test)]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns `false`: faults are planted only in tests.
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) fn has(&self, _fault: super::fault::Fault) -> bool {
        false
    }

    /// Returns the root queue of `pcpu`.
    pub(crate) fn root(&self, pcpu: u32) -> QueueId {
        QueueId(pcpu)
    }

    /// Returns the entity of the queue that contains `entity`.
    pub(crate) fn parent(&self, entity: EntityId) -> Option<EntityId> {
        self.queues[self.entities[entity].queue].entity
    }

    /// Returns `entity` and its ancestors, from the bottom up.
    pub(crate) fn path(&self, entity: EntityId) -> impl Iterator<Item = EntityId> + '_ {
        core::iter::successors(Some(entity), |&at| self.parent(at))
    }

    /// Returns the queue of `group` on `pcpu`. Makes it if it does not exist.
    pub(crate) fn queue_of(&mut self, group: GroupId, pcpu: u32) -> QueueId {
        if let Some(queue) = self.groups[group].queues[pcpu as usize] {
            return queue;
        }
        let parent = self.groups[group].parent.unwrap_or_default();
        let parent_queue = self.queue_of(parent, pcpu);
        let id = self.queues.next_id();
        let entity = self.entities.next_id();
        let weight = match self.share_rule {
            // Until the next walk it has all of the group's shares.
            ShareRule::Walk => self.groups[group].shares,
            ShareRule::Window | ShareRule::Geometric | ShareRule::Concurrent => super::weight::MIN_SHARES,
        };
        self.entities
            .push(Entity::new(EntityKind::Group(id), parent_queue, weight));
        let mut queue = Queue::new(pcpu, group, Some(entity));
        queue.quota.enabled = self.groups[group].bandwidth.is_some();
        queue.quota.throttles = self.queues[parent_queue].quota.throttles;
        self.queues.push(queue);
        self.groups[group].queues[pcpu as usize] = Some(id);
        id
    }

    /// Returns the average of the virtual runtimes on `queue` with the running entity, if the policy needs it.
    pub(crate) fn averaged(&self, queue: QueueId) -> Average {
        let at = &self.queues[queue];
        match at.curr.map(|curr| &self.entities[curr]) {
            Some(curr) if curr.on_rq => at.average.with(curr.vruntime, curr.weight),
            _ => at.average,
        }
    }

    /// Returns that average as a virtual time. A new entity without lag is placed there.
    pub(crate) fn average(&self, queue: QueueId) -> u64 {
        self.averaged(queue).value().unwrap_or(self.queues[queue].min_vruntime)
    }

    /// Puts an entity into its queue's timeline.
    pub(super) fn tree_insert(&mut self, queue: QueueId, id: EntityId) {
        let entity = &self.entities[id];
        let at = &mut self.queues[queue];
        at.timeline.insert(entity.vruntime, id);
        if self.policy.averages() {
            at.average.add(entity.vruntime, entity.weight);
        }
    }

    /// Takes an entity out of its queue's timeline.
    pub(super) fn tree_remove(&mut self, queue: QueueId, id: EntityId) {
        let entity = &self.entities[id];
        let at = &mut self.queues[queue];
        at.timeline.remove(entity.vruntime, id);
        if self.policy.averages() {
            at.average.sub(entity.vruntime, entity.weight);
        }
    }

    /// Makes the virtual runtime of `entity` relative to its queue, for its next queue.
    pub(crate) fn make_relative(&mut self, entity: EntityId) {
        let min = self.queues[self.entities[entity].queue].min_vruntime;
        let entity = &mut self.entities[entity];
        entity.vruntime = entity.vruntime.wrapping_sub(min);
    }

    /// Counts `count` more runnable threads on `queue` (fewer if negative).
    pub(super) fn count_runnable(&mut self, queue: QueueId, count: i64) {
        let at = &mut self.queues[queue];
        let before = at.runnable;
        at.runnable = (i64::from(before) + count) as u32;
        if at.entity.is_some() {
            if self.share_rule == ShareRule::Concurrent {
                at.share.runnable.advance(self.now, u64::from(before) * NICE_0);
            }
        } else {
            let crowded = |count: u32| i64::from(count >= 2);
            let change = crowded(at.runnable) - crowded(before);
            self.crowded_pcpus = (i64::from(self.crowded_pcpus) + change) as u32;
        }
    }
}
