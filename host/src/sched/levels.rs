//! Enqueueing and dequeueing entities at every level, accounting, and picking.

use super::entity::{EntityKind, Mark};
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::policy::{Arrival, Departure, SliceEnd};
use super::timeline::{earlier, later};
use super::weight::scaled;
use crate::boundary::TaskId;

impl Hierarchy {
    /// Charges the running entity of `queue` for the time since it was last charged.
    pub(crate) fn account(&mut self, queue: QueueId) {
        let now = self.now;
        let at = &mut self.queues[queue];
        let Some(curr) = at.curr else { return };
        let entity = &mut self.entities[curr];
        let ran = now - entity.exec_start;
        if ran == 0 {
            return;
        }
        entity.exec_start = now;
        entity.sum_exec += ran;
        entity.vruntime = entity.vruntime.wrapping_add(scaled(ran, entity.weight));
        at.share.unaccounted += ran;
        let (pcpu, enabled) = (at.pcpu, at.quota.enabled);
        self.advance_min_vruntime(queue);
        let policy = self.policy;
        if policy.charged(self, queue, curr) {
            self.clear_buddies(curr);
            self.overdue.push(pcpu);
        }
        if enabled {
            self.charge_quota(queue, ran);
        }
    }

    fn advance_min_vruntime(&mut self, queue: QueueId) {
        let at = &mut self.queues[queue];
        let curr = at.curr.map(|curr| self.entities[curr].vruntime);
        let to = match (curr, at.timeline.least()) {
            (Some(curr), Some(least)) => earlier(curr, least),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        at.min_vruntime = later(at.min_vruntime, to);
    }

    pub(super) fn enqueue_entity(&mut self, id: EntityId, arrival: Arrival) {
        let queue = self.entities[id].queue;
        if arrival != Arrival::GroupWoken {
            let min = self.queues[queue].min_vruntime;
            let entity = &mut self.entities[id];
            entity.vruntime = entity.vruntime.wrapping_add(min);
        }
        self.account(queue);
        self.update_share_history(queue, false);
        if self.tracks {
            self.track(queue);
            let now = self.now;
            let entity = &mut self.entities[id];
            entity.tracked.arrive(now, entity.weight);
            let part = entity.tracked;
            if !core::mem::take(&mut entity.counts_asleep) {
                self.queues[queue].tracked.add(part);
            }
        }
        self.queues[queue].nr += 1;
        self.change_load(queue, 0, self.entities[id].weight);
        self.list_thread(queue, id);
        self.update_shares(queue);
        let policy = self.policy;
        policy.arrive(self, queue, id, arrival);
        self.entities[id].on_rq = true;
        if self.queues[queue].curr != Some(id) {
            self.tree_insert(queue, id);
        }
        let at = &mut self.queues[queue];
        if !at.listed {
            at.listed = true;
            let pcpu = at.pcpu as usize;
            self.leaves[pcpu].push(queue);
        }
        let at = &self.queues[queue];
        if at.quota.enabled && at.nr == 1 && at.curr.is_none() {
            self.check_quota(queue);
        }
    }

    /// Takes an entity off its queue. Returns `false` if it stays there, delayed.
    pub(super) fn dequeue_entity(&mut self, id: EntityId, departure: Departure) -> bool {
        let queue = self.entities[id].queue;
        self.account(queue);
        self.clear_buddies(id);
        let was_listed = !self.entities[id].delayed;
        let policy = self.policy;
        if !policy.leave(self, queue, id, departure) {
            self.unlist_thread(queue, id);
            self.entities[id].delayed = true;
            return false;
        }
        if self.queues[queue].curr != Some(id) {
            self.tree_remove(queue, id);
        }
        self.entities[id].on_rq = false;
        self.update_share_history(queue, false);
        if self.tracks {
            self.track(queue);
            let now = self.now;
            let entity = &mut self.entities[id];
            entity.tracked.advance(now, entity.weight);
            let part = entity.tracked;
            entity.counts_asleep = self.sleepers_count && departure != Departure::Move;
            if !entity.counts_asleep {
                self.queues[queue].tracked.sub(part);
            }
        }
        self.queues[queue].nr -= 1;
        self.change_load(queue, self.entities[id].weight, 0);
        if was_listed {
            self.unlist_thread(queue, id);
        }
        if departure == Departure::Move {
            // Relative to the queue's minimum before this entity leaves and moves it.
            self.make_relative(id);
        }
        self.advance_min_vruntime(queue);
        self.update_shares(queue);
        if self.queues[queue].nr == 0 {
            self.return_quota(queue);
        }
        true
    }

    /// Updates the sum of the tracked loads on `queue`.
    pub(super) fn track(&mut self, queue: QueueId) {
        let now = self.now;
        let at = &mut self.queues[queue];
        at.tracked.advance(now, at.load);
    }

    /// Takes the load of a thread that sleeps out of its queue's: it has ended, or wakes elsewhere.
    pub(super) fn uncount(&mut self, task: EntityId) {
        if !core::mem::take(&mut self.entities[task].counts_asleep) {
            return;
        }
        let (queue, now) = (self.entities[task].queue, self.now);
        self.track(queue);
        self.entities[task].tracked.advance(now, 0);
        let part = self.entities[task].tracked;
        self.queues[queue].tracked.sub(part);
    }

    /// Puts a thread's entity, and its ancestors that are not there yet, on their queues.
    pub(crate) fn enqueue(&mut self, task: EntityId, arrival: Arrival) {
        let mut arrival = arrival;
        let mut at = Some(task);
        while let Some(id) = at {
            if self.entities[id].on_rq {
                if self.entities[id].delayed {
                    self.end_delay(id);
                }
                break;
            }
            self.enqueue_entity(id, arrival);
            let queue = self.entities[id].queue;
            self.count_runnable(queue, 1);
            if self.queues[queue].quota.throttled {
                return;
            }
            arrival = Arrival::GroupWoken;
            at = self.parent(id);
        }
        self.count_path(at, 1);
    }

    /// Takes a thread's entity, and ancestors without other entities, off their queues.
    pub(crate) fn dequeue(&mut self, task: EntityId, departure: Departure) {
        self.dequeue_path(task, departure, 1);
    }

    /// Dequeues an entity below which `count` threads could run, and ancestors without other entities.
    fn dequeue_path(&mut self, entity: EntityId, departure: Departure, count: i64) {
        let mut at = Some(entity);
        let mut how = departure;
        while let Some(id) = at {
            if !self.dequeue_entity(id, how) {
                return self.count_path(Some(id), -count);
            }
            let queue = self.entities[id].queue;
            self.count_runnable(queue, -count);
            if self.queues[queue].quota.throttled {
                return;
            }
            let parent = self.parent(id);
            if self.queues[queue].load > 0 {
                // The group still has a claim on the rest of the slice of its sleeping member.
                if let Some(parent) = parent
                    && departure != Departure::Move
                    && count > 0
                    && self.queues[queue].quota.throttles == 0
                {
                    self.mark(parent, Mark::Next);
                }
                return self.count_path(parent, -count);
            }
            how = Departure::Sleep;
            at = parent;
        }
    }

    /// Counts `count` more runnable threads from `from` upward, up to a throttled queue, and updates the shares.
    pub(super) fn count_path(&mut self, from: Option<EntityId>, count: i64) {
        let mut at = from;
        while let Some(id) = at {
            let queue = self.entities[id].queue;
            self.count_runnable(queue, count);
            self.update_share_history(queue, false);
            self.update_shares(queue);
            if self.queues[queue].quota.throttled {
                return;
            }
            at = self.parent(id);
        }
    }

    /// Adds a thread to its queue's list of runnable threads. Does nothing for a group.
    fn list_thread(&mut self, queue: QueueId, id: EntityId) {
        if !matches!(self.entities[id].kind, EntityKind::Task(_)) {
            return;
        }
        let weight = self.entities[id].weight;
        let at = &mut self.queues[queue];
        at.task_weight += weight;
        let head = at.tasks.replace(id);
        self.entities[id].list_next = head;
        if let Some(head) = head {
            self.entities[head].list_prev = Some(id);
        }
    }

    fn unlist_thread(&mut self, queue: QueueId, id: EntityId) {
        let entity = &mut self.entities[id];
        if !matches!(entity.kind, EntityKind::Task(_)) {
            return;
        }
        let weight = entity.weight;
        let (prev, next) = (entity.list_prev.take(), entity.list_next.take());
        self.queues[queue].task_weight -= weight;
        match prev {
            Some(prev) => self.entities[prev].list_next = next,
            None => self.queues[queue].tasks = next,
        }
        if let Some(next) = next {
            self.entities[next].list_prev = prev;
        }
    }

    /// Makes a delayed entity runnable again in its place, without lag that it gained meanwhile.
    pub(super) fn end_delay(&mut self, id: EntityId) {
        let queue = self.entities[id].queue;
        self.account(queue);
        let ahead = self.average(queue).wrapping_sub(self.entities[id].vruntime) as i64 <= 0;
        let runs = self.queues[queue].curr == Some(id);
        if !ahead && self.policy.zeroes_delay() {
            if !runs {
                self.tree_remove(queue, id);
            }
            self.entities[id].vlag = 0;
            self.entities[id].on_rq = false;
            let policy = self.policy;
            policy.arrive(self, queue, id, Arrival::Woken);
            self.entities[id].on_rq = true;
            if !runs {
                self.tree_insert(queue, id);
            }
        }
        self.entities[id].delayed = false;
        self.list_thread(queue, id);
    }

    /// Wakes a thread that sleeps delayed on its queue.
    pub(crate) fn wake_delayed(&mut self, task: EntityId) {
        self.end_delay(task);
        self.count_path(Some(task), 1);
    }

    /// Picks the thread to run from the top down. `prev` is the thread that ran until now.
    pub(crate) fn pick(&mut self, pcpu: u32, prev: Option<EntityId>) -> Option<TaskId> {
        loop {
            match self.find(pcpu, prev)? {
                // Its lag is no longer negative, so now it sleeps.
                (id, _) if self.entities[id].delayed => self.dequeue_path(id, Departure::Final, 0),
                (_, EntityKind::Task(task)) => return Some(task),
                (_, EntityKind::Group(_)) => panic!("a group without threads that is not delayed"),
            }
        }
    }

    /// Takes the thread of `picked`, which runs from now on, and its ancestors out of the timelines.
    pub(crate) fn set_next(&mut self, picked: EntityId, prev: Option<EntityId>) {
        let (now, policy) = (self.now, self.policy);
        let prev = prev.filter(|_| self.slice_continues);
        let mut at = Some(picked);
        while let Some(id) = at {
            self.clear_buddies(id);
            let continues = prev.is_some_and(|prev| self.path(prev).any(|at| at == id));
            let entity = &mut self.entities[id];
            entity.exec_start = now;
            if !continues {
                entity.prev_sum_exec = entity.sum_exec;
            }
            let queue = entity.queue;
            self.tree_remove(queue, id);
            self.queues[queue].curr = Some(id);
            if !continues {
                policy.picked(self, id);
            }
            at = self.parent(id);
        }
    }

    /// Returns the thread that should run on `pcpu`, or a delayed entity that precedes it.
    fn find(&self, pcpu: u32, prev: Option<EntityId>) -> Option<(EntityId, EntityKind)> {
        let mut queue = self.root(pcpu);
        loop {
            let id = self.policy.pick(self, queue, prev)?;
            let entity = &self.entities[id];
            match entity.kind {
                EntityKind::Group(child) if !entity.delayed => queue = child,
                stands => return Some((id, stands)),
            }
        }
    }

    /// Puts the running thread's entity back into the timelines, if it is still on its queue.
    pub(crate) fn put(&mut self, task: EntityId) {
        let mut at = Some(task);
        while let Some(id) = at {
            let queue = self.entities[id].queue;
            if self.entities[id].on_rq {
                self.account(queue);
            }
            if self.queues[queue].quota.enabled {
                self.check_quota(queue);
            }
            self.queues[queue].curr = None;
            if self.entities[id].on_rq {
                self.tree_insert(queue, id);
            }
            at = self.parent(id);
        }
    }

    /// Handles the scheduler tick for the running thread's entity. Returns whether to reschedule.
    pub(crate) fn tick(&mut self, task: EntityId) -> bool {
        let mut reschedule = false;
        let mut at = Some(task);
        while let Some(id) = at {
            let queue = self.entities[id].queue;
            self.account(queue);
            if self.tracks {
                self.track(queue);
            }
            self.tick_shares(queue);
            if self.queues[queue].nr > 1 {
                let policy = self.policy;
                match policy.tick(self, queue, id) {
                    Some(SliceEnd::Spent) => {
                        self.clear_buddies(id);
                        reschedule = true;
                    }
                    Some(SliceEnd::Unfair) => reschedule = true,
                    None => {}
                }
            }
            at = self.parent(id);
        }
        reschedule
    }
}
