//! The hierarchy of queues: putting entities on and off at every level, accounting, buddies.
//!
//! What differs between schedulers (placement, picking, slices, preemption) is asked of the [`Policy`].
//!
//! - **Load is the sum**: a queue's `load` and `nr` are the sum over its entities with `on_rq`.
//! - **A child's queue is empty, or its entity stands in the parent.**

use alloc::vec;
use alloc::vec::Vec;

use super::buddy::Mark;
use super::cfs::Cfs;
use super::entity::{Entity, EntityId, Group, Queue, QueueId, Stands};
use super::policy::{Arrival, Policy};
use super::timeline::{earlier, later};
use super::weight::scaled;
use crate::boundary::{GroupId, TaskId};

/// How a thread's entity leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It sleeps: its virtual runtime stays as it is until it is woken.
    Sleep,
    /// It moves to another queue: its virtual runtime becomes relative.
    Move,
}

/// All entities, queues and groups.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    pub(crate) entities: Vec<Entity>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) groups: Vec<Group>,
    /// For each pCPU the group queues that have, or lately had, load.
    pub(crate) leaves: Vec<Vec<QueueId>>,
    pub(crate) policy: Cfs,
    pub(crate) shares_window_ns: u64,
    /// Now. Nanoseconds.
    pub(crate) now: u64,
}

impl Hierarchy {
    pub(crate) fn new(pcpus: u32, policy: Cfs, shares_window_ns: u64) -> Hierarchy {
        let root = GroupId(0);
        Hierarchy {
            entities: Vec::new(),
            queues: (0..pcpus).map(|pcpu| Queue::new(pcpu, root, None)).collect(),
            groups: vec![Group {
                parent: None,
                shares: super::weight::NICE_0,
                load: 0,
                queues: (0..pcpus).map(|pcpu| Some(QueueId(pcpu))).collect(),
            }],
            leaves: vec![Vec::new(); pcpus as usize],
            policy,
            shares_window_ns,
            now: 0,
        }
    }

    pub(crate) fn entity(&self, id: EntityId) -> &Entity {
        &self.entities[id.0 as usize]
    }

    pub(crate) fn entity_mut(&mut self, id: EntityId) -> &mut Entity {
        &mut self.entities[id.0 as usize]
    }

    pub(crate) fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.0 as usize]
    }

    pub(crate) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.0 as usize]
    }

    /// The root queue of `pcpu`.
    pub(crate) fn root(&self, pcpu: u32) -> QueueId {
        QueueId(pcpu)
    }

    /// The entity of the queue in which `entity` stands.
    pub(crate) fn parent(&self, entity: EntityId) -> Option<EntityId> {
        self.queue(self.entity(entity).queue).entity
    }

    /// `entity` and its ancestors, from the bottom up.
    pub(crate) fn path(&self, entity: EntityId) -> impl Iterator<Item = EntityId> + '_ {
        core::iter::successors(Some(entity), |&at| self.parent(at))
    }

    /// The queue of `group` on `pcpu`, made if it is not there yet.
    pub(crate) fn queue_of(&mut self, group: GroupId, pcpu: u32) -> QueueId {
        if let Some(queue) = self.groups[group.0 as usize].queues[pcpu as usize] {
            return queue;
        }
        let parent = self.groups[group.0 as usize].parent.unwrap_or(GroupId(0));
        let parent_queue = self.queue_of(parent, pcpu);
        let queue = QueueId(self.queues.len() as u32);
        let entity = EntityId(self.entities.len() as u32);
        self.entities.push(Entity::new(
            Stands::Group(queue),
            parent_queue,
            super::group::MIN_SHARES,
        ));
        self.queues.push(Queue::new(pcpu, group, Some(entity)));
        self.groups[group.0 as usize].queues[pcpu as usize] = Some(queue);
        queue
    }

    /// Charges the running entity of `queue` for the time since it was last charged.
    pub(crate) fn account(&mut self, queue: QueueId) {
        let now = self.now;
        let at = &mut self.queues[queue.0 as usize];
        let Some(curr) = at.curr else { return };
        let entity = &mut self.entities[curr.0 as usize];
        let ran = now - entity.exec_start;
        if ran == 0 {
            return;
        }
        entity.exec_start = now;
        entity.sum_exec += ran;
        entity.vruntime = entity.vruntime.wrapping_add(scaled(ran, entity.weight));
        at.share.unaccounted += ran;
        self.advance_min_vruntime(queue);
    }

    fn advance_min_vruntime(&mut self, queue: QueueId) {
        let at = &mut self.queues[queue.0 as usize];
        let curr = at.curr.map(|curr| self.entities[curr.0 as usize].vruntime);
        let to = match (curr, at.timeline.least()) {
            (Some(curr), Some(least)) => earlier(curr, least),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        at.min_vruntime = later(at.min_vruntime, to);
    }

    fn enqueue_entity(&mut self, id: EntityId, arrival: Arrival) {
        let queue = self.entity(id).queue;
        if matches!(arrival, Arrival::Woken | Arrival::Moved) {
            let min = self.queue(queue).min_vruntime;
            let entity = self.entity_mut(id);
            entity.vruntime = entity.vruntime.wrapping_add(min);
        }
        self.account(queue);
        self.update_share_history(queue, false);
        self.add_load(queue, id);
        self.update_shares(queue);
        if matches!(arrival, Arrival::Woken | Arrival::GroupWoken) {
            let policy = self.policy;
            let vruntime = policy.place(self, queue, id, arrival);
            self.entity_mut(id).vruntime = vruntime;
        }
        let vruntime = self.entity(id).vruntime;
        self.entity_mut(id).on_rq = true;
        let at = self.queue_mut(queue);
        if at.curr != Some(id) {
            at.timeline.insert(vruntime, id);
        }
        if !at.listed {
            at.listed = true;
            let pcpu = at.pcpu as usize;
            self.leaves[pcpu].push(queue);
        }
    }

    fn dequeue_entity(&mut self, id: EntityId, departure: Departure) {
        let queue = self.entity(id).queue;
        self.account(queue);
        self.clear_buddies(id);
        let vruntime = self.entity(id).vruntime;
        let at = self.queue_mut(queue);
        if at.curr != Some(id) {
            at.timeline.remove(vruntime, id);
        }
        self.entity_mut(id).on_rq = false;
        self.update_share_history(queue, false);
        self.sub_load(queue, id);
        if departure == Departure::Move {
            // Relative to the queue as it is before this entity's leaving moves its minimum.
            let min = self.queue(queue).min_vruntime;
            let entity = self.entity_mut(id);
            entity.vruntime = entity.vruntime.wrapping_sub(min);
        }
        self.advance_min_vruntime(queue);
        self.update_shares(queue);
    }

    /// Puts a thread's entity, and what of its ancestors is not there yet, on the queues.
    pub(crate) fn enqueue(&mut self, task: EntityId, arrival: Arrival) {
        let mut arrival = arrival;
        let mut at = Some(task);
        while let Some(id) = at {
            if self.entity(id).on_rq {
                break;
            }
            self.enqueue_entity(id, arrival);
            arrival = Arrival::GroupWoken;
            at = self.parent(id);
        }
        self.update_path(at);
    }

    /// Takes a thread's entity, and ancestors that are left without any, off the queues.
    pub(crate) fn dequeue(&mut self, task: EntityId, departure: Departure) {
        let mut at = Some(task);
        let mut how = departure;
        while let Some(id) = at {
            self.dequeue_entity(id, how);
            let parent = self.parent(id);
            if self.queue(self.entity(id).queue).load > 0 {
                // The group still has a claim on the slice that its sleeping member leaves.
                if let (Departure::Sleep, Some(parent)) = (departure, parent) {
                    self.mark(parent, Mark::Next);
                }
                self.update_path(parent);
                return;
            }
            how = Departure::Sleep;
            at = parent;
        }
    }

    /// Brings shares up to date from `from` upwards, after something changed beneath.
    fn update_path(&mut self, from: Option<EntityId>) {
        let mut at = from;
        while let Some(id) = at {
            let queue = self.entity(id).queue;
            self.update_share_history(queue, false);
            self.update_shares(queue);
            at = self.parent(id);
        }
    }

    fn add_load(&mut self, queue: QueueId, id: EntityId) {
        let weight = self.entity(id).weight;
        let is_task = matches!(self.entity(id).stands, Stands::Task(_));
        let at = self.queue_mut(queue);
        at.load += weight;
        at.nr += 1;
        if is_task {
            at.task_weight += weight;
            let head = at.tasks.replace(id);
            self.entity_mut(id).list_next = head;
            if let Some(head) = head {
                self.entity_mut(head).list_prev = Some(id);
            }
        }
    }

    fn sub_load(&mut self, queue: QueueId, id: EntityId) {
        let entity = self.entity_mut(id);
        let (weight, is_task) = (entity.weight, matches!(entity.stands, Stands::Task(_)));
        let (prev, next) = (entity.list_prev.take(), entity.list_next.take());
        let at = self.queue_mut(queue);
        at.load -= weight;
        at.nr -= 1;
        if is_task {
            at.task_weight -= weight;
            match prev {
                Some(prev) => self.entity_mut(prev).list_next = next,
                None => self.queue_mut(queue).tasks = next,
            }
            if let Some(next) = next {
                self.entity_mut(next).list_prev = prev;
            }
        }
    }

    /// Picks the thread to run from the top down, and takes it and its ancestors out of the timelines.
    pub(crate) fn pick(&mut self, pcpu: u32) -> Option<TaskId> {
        let mut queue = self.root(pcpu);
        loop {
            let policy = self.policy;
            let id = policy.pick(self, queue)?;
            self.clear_buddies(id);
            let now = self.now;
            let entity = self.entity_mut(id);
            entity.exec_start = now;
            entity.prev_sum_exec = entity.sum_exec;
            let (vruntime, stands) = (entity.vruntime, entity.stands);
            let at = self.queue_mut(queue);
            at.timeline.remove(vruntime, id);
            at.curr = Some(id);
            match stands {
                Stands::Task(task) => return Some(task),
                Stands::Group(child) => queue = child,
            }
        }
    }

    /// The running thread's entity goes back into the timelines, if it is still on its queue.
    pub(crate) fn put(&mut self, task: EntityId) {
        let mut at = Some(task);
        while let Some(id) = at {
            let queue = self.entity(id).queue;
            if self.entity(id).on_rq {
                self.account(queue);
                let vruntime = self.entity(id).vruntime;
                self.queue_mut(queue).timeline.insert(vruntime, id);
            }
            self.queue_mut(queue).curr = None;
            at = self.parent(id);
        }
    }

    /// The scheduler's tick for the running thread's entity: whether to reschedule.
    pub(crate) fn tick(&mut self, task: EntityId) -> bool {
        let mut reschedule = false;
        let mut at = Some(task);
        while let Some(id) = at {
            let queue = self.entity(id).queue;
            self.account(queue);
            if self.queue(queue).share.unaccounted >= self.shares_window_ns {
                self.update_share_history(queue, false);
                self.update_shares(queue);
            }
            if self.queue(queue).nr > 1 {
                let policy = self.policy;
                match policy.tick(self, queue, id) {
                    Some(super::policy::SliceEnd::Spent) => {
                        self.clear_buddies(id);
                        reschedule = true;
                    }
                    Some(super::policy::SliceEnd::Unfair) => reschedule = true,
                    None => {}
                }
            }
            at = self.parent(id);
        }
        reschedule
    }

    /// Virtual runtime of `entity` relative to its queue, for its next queue.
    pub(crate) fn make_relative(&mut self, entity: EntityId) {
        let min = self.queue(self.entity(entity).queue).min_vruntime;
        let entity = self.entity_mut(entity);
        entity.vruntime = entity.vruntime.wrapping_sub(min);
    }
}
