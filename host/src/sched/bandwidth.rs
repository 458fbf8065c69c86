//! Bandwidth control: a group gets at most its quota of CPU time in each period (docs/spec/host.md, "Bandwidth
//! control", Linux 3.2 and later).
//!
//! The group's pool is refilled at the start of each period. A queue of the group draws slices from it. A queue that
//! has used its slice while the pool is empty is *throttled*: its entity leaves the parent's queue. Its threads cannot
//! run until the pool is refilled or another queue returns what it does not need.
//!
//! - **Debt is paid**: time that a queue ran beyond its slice is taken from its next one.
//! - **No hoarding**: a queue without threads keeps a millisecond at most.

use alloc::vec::Vec;

use super::Scheduler;
use super::entity::EntityKind;
use super::fault::Fault;
use super::hierarchy::Hierarchy;
use super::ids::{EntityId, QueueId};
use super::policy::{Arrival, Departure};
use super::quota::{Bandwidth, Throttling};
use crate::boundary::{GroupId, TaskId};
use crate::quota::Quota;
use crate::step::Step;
use crate::timers::Timer;

/// The quota that a queue without threads may keep (`min_cfs_rq_runtime`). Nanoseconds.
const KEPT_NS: u64 = 1_000_000;
/// Delay between the first return of quota and its distribution (`cfs_bandwidth_slack_period`). Nanoseconds.
const SLACK_NS: u64 = 5_000_000;
/// Returned quota is not distributed if the next period starts within this time (`min_bandwidth_expiration`).
/// Nanoseconds.
const NEAR_NS: u64 = 2_000_000;

impl Hierarchy {
    /// Returns whether `entity` cannot run because of a quota.
    pub(crate) fn is_throttled(&self, entity: EntityId) -> bool {
        self.queues[self.entities[entity].queue].quota.throttles > 0
    }

    /// Returns whether a quota of `entity`, which runs, is spent.
    pub(crate) fn is_out_of_quota(&self, entity: EntityId) -> bool {
        self.path(entity).any(|at| {
            let quota = &self.queues[self.entities[at].queue].quota;
            quota.enabled && quota.left <= 0
        })
    }

    fn bandwidth_mut(&mut self, queue: QueueId) -> &mut Bandwidth {
        let group = self.queues[queue].group;
        let bandwidth = &mut self.groups[group].bandwidth;
        bandwidth
            .as_mut()
            .expect("a queue with a quota belongs to a group with one")
    }

    /// Charges `queue` for `ran` nanoseconds. If its quota is used up, its pCPU is to be rescheduled.
    pub(super) fn charge_quota(&mut self, queue: QueueId, ran: u64) {
        if self.quota_expires {
            let generation = self.bandwidth_mut(queue).generation;
            let quota = &mut self.queues[queue].quota;
            if quota.generation != generation {
                quota.left = quota.left.min(0);
                quota.generation = generation;
            }
        }
        let quota = &mut self.queues[queue].quota;
        quota.left -= ran as i64;
        if quota.left > 0 || self.draw(queue) {
            return;
        }
        let at = &self.queues[queue];
        if at.curr.is_some() {
            let pcpu = at.pcpu;
            self.overdue.push(pcpu);
        }
    }

    /// Draws the next slice. Returns whether the queue can run on.
    fn draw(&mut self, queue: QueueId) -> bool {
        let (now, slice, group) = (self.now, self.quota_slice_ns, self.queues[queue].group);
        let left = self.queues[queue].quota.left;
        let faulty = self.has(Fault::QuotaNotRefilled);
        let bandwidth = self.bandwidth_mut(queue);
        let mut timer = None;
        if !bandwidth.active {
            // After idle periods the old phase continues.
            let passed = now.saturating_sub(bandwidth.ends) / bandwidth.period_ns;
            bandwidth.ends += (passed + 1) * bandwidth.period_ns;
            bandwidth.fill(faulty);
            bandwidth.active = true;
            timer = Some(bandwidth.ends);
        }
        let wanted = (slice as i64 - left) as u64;
        let drawn = wanted.min(bandwidth.pool);
        bandwidth.pool -= drawn;
        if drawn > 0 {
            bandwidth.idle = false;
        }
        let generation = bandwidth.generation;
        if let Some(at) = timer {
            self.timers.push((Timer::Period(group), at));
        }
        let quota = &mut self.queues[queue].quota;
        quota.left += drawn as i64;
        quota.generation = generation;
        quota.left > 0
    }

    /// Throttles `queue` if it has no quota left and can get none.
    pub(super) fn check_quota(&mut self, queue: QueueId) {
        if self.queues[queue].quota.throttled {
            return;
        }
        self.charge_quota(queue, 0);
        if self.queues[queue].quota.left <= 0 {
            self.throttle(queue);
        }
    }

    fn throttle(&mut self, queue: QueueId) {
        let now = self.now;
        self.shift_throttles(queue, true);
        let at = &mut self.queues[queue];
        at.quota.throttled = true;
        at.quota.since = now;
        let (threads, entity) = (i64::from(at.runnable), at.entity);
        self.bandwidth_mut(queue).throttled.push(queue);
        let mut at = entity;
        let mut leaves = true;
        while let Some(id) = at {
            if !self.entities[id].on_rq {
                break;
            }
            if leaves {
                self.dequeue_entity(id, Departure::Final);
            }
            let parent = self.entities[id].queue;
            self.count_runnable(parent, -threads);
            if self.queues[parent].load > 0 {
                leaves = false;
            }
            at = self.parent(id);
        }
        self.count_path(entity.and_then(|entity| self.parent(entity)), 0);
    }

    fn unthrottle(&mut self, queue: QueueId) {
        let now = self.now;
        let at = &mut self.queues[queue];
        at.quota.throttled = false;
        let since = at.quota.since;
        self.bandwidth_mut(queue).counts.throttled_ns += now - since;
        self.shift_throttles(queue, false);
        let at = &self.queues[queue];
        let (threads, mut enters, mut at) = (i64::from(at.runnable), at.load > 0, at.entity);
        if !enters {
            return;
        }
        while let Some(id) = at {
            enters &= !self.entities[id].on_rq;
            if self.entities[id].delayed {
                self.end_delay(id);
            }
            if enters {
                self.enqueue_entity(id, Arrival::GroupWoken);
            }
            let parent = self.entities[id].queue;
            self.count_runnable(parent, threads);
            if self.queues[parent].quota.throttled {
                break;
            }
            at = self.parent(id);
        }
        self.count_path(self.queues[queue].entity, 0);
    }

    /// Counts that `queue` is throttled or no longer is, for the queue and all below it.
    fn shift_throttles(&mut self, queue: QueueId, more: bool) {
        let at = &mut self.queues[queue];
        let quota = &mut at.quota;
        quota.throttles = if more { quota.throttles + 1 } else { quota.throttles - 1 };
        let (changes, pcpu, group) = (quota.throttles == u32::from(more), at.pcpu, at.group);
        if changes {
            let mut thread = at.tasks;
            while let Some(id) = thread {
                if let EntityKind::Task(task) = self.entities[id].kind {
                    self.throttle_changes.push(task);
                }
                thread = self.entities[id].list_next;
            }
        }
        for index in 0..self.groups[group].children.len() {
            let child = self.groups[group].children[index];
            if let Some(queue) = self.groups[child].queues[pcpu as usize] {
                self.shift_throttles(queue, more);
            }
        }
    }

    /// Returns the quota that `queue`, which has no threads any more, does not need.
    pub(super) fn return_quota(&mut self, queue: QueueId) {
        let quota = self.queues[queue].quota;
        if !quota.enabled || quota.throttled || self.has(Fault::SliceKept) {
            return;
        }
        let surplus = quota.left - KEPT_NS as i64;
        let (now, slice, expires) = (self.now, self.quota_slice_ns, self.quota_expires);
        let group = self.queues[queue].group;
        if surplus <= 0 {
            return;
        }
        let bandwidth = self.bandwidth_mut(queue);
        let mut timer = None;
        if !expires || bandwidth.generation == quota.generation {
            bandwidth.pool += surplus as u64;
            let worth = bandwidth.pool > slice && !bandwidth.throttled.is_empty() && !bandwidth.slack;
            if worth && bandwidth.ends >= now + SLACK_NS + NEAR_NS {
                bandwidth.slack = true;
                timer = Some(now + SLACK_NS);
            }
        }
        if let Some(at) = timer {
            self.timers.push((Timer::Slack(group), at));
        }
        self.queues[queue].quota.left -= surplus;
    }

    /// Gives throttled queues of `group` enough quota to run again, in the order in which they were throttled. Returns
    /// their pCPUs.
    fn distribute(&mut self, group: GroupId) -> Vec<u32> {
        let mut resumed = Vec::new();
        while let Some(bandwidth) = self.groups[group].bandwidth.as_mut() {
            let (Some(&queue), true) = (bandwidth.throttled.first(), bandwidth.pool > 0) else {
                break;
            };
            let quota = &mut self.queues[queue].quota;
            let given = ((1 - quota.left).max(0) as u64).min(bandwidth.pool);
            bandwidth.pool -= given;
            quota.left += given as i64;
            quota.generation = bandwidth.generation;
            if quota.left > 0 {
                bandwidth.throttled.remove(0);
                resumed.push(self.queues[queue].pcpu);
                self.unthrottle(queue);
            }
        }
        resumed
    }

    /// Handles the end of a period of `group`. Returns the pCPUs of queues that run again.
    fn period_ends(&mut self, group: GroupId) -> Vec<u32> {
        let (now, faulty) = (self.now, self.has(Fault::QuotaNotRefilled));
        let Some(bandwidth) = self.groups[group].bandwidth.as_mut() else {
            return Vec::new();
        };
        let throttled = !bandwidth.throttled.is_empty();
        bandwidth.counts.periods += 1;
        if !throttled && bandwidth.idle {
            bandwidth.active = false;
            return Vec::new();
        }
        bandwidth.fill(faulty);
        bandwidth.idle = !throttled;
        bandwidth.counts.throttled_periods += u64::from(throttled);
        while bandwidth.ends <= now {
            bandwidth.ends += bandwidth.period_ns;
        }
        let ends = bandwidth.ends;
        self.timers.push((Timer::Period(group), ends));
        self.distribute(group)
    }

    /// Distributes quota that was returned to `group`. Returns the pCPUs of queues that run again.
    fn slack_ends(&mut self, group: GroupId) -> Vec<u32> {
        let (now, slice) = (self.now, self.quota_slice_ns);
        let Some(bandwidth) = self.groups[group].bandwidth.as_mut() else {
            return Vec::new();
        };
        bandwidth.slack = false;
        if bandwidth.pool <= slice || bandwidth.ends < now + NEAR_NS {
            return Vec::new();
        }
        self.distribute(group)
    }

    /// Returns how long `queue` has been throttled until `now`, in the present throttling.
    fn throttled_since(&self, queue: QueueId, now: u64) -> u64 {
        let quota = self.queues[queue].quota;
        if quota.throttled { now - quota.since } else { 0 }
    }
}

impl Scheduler {
    /// Gives `group` a quota.
    pub(crate) fn set_quota(&mut self, group: GroupId, quota: Quota) {
        self.hierarchy.groups[group].bandwidth = Some(Bandwidth::new(quota));
        let queues = self.hierarchy.groups[group].queues.clone();
        for queue in queues.into_iter().flatten() {
            self.hierarchy.queues[queue].quota.enabled = true;
        }
    }

    /// Handles the expiry of a timer of bandwidth control.
    pub(crate) fn bandwidth_timer(&mut self, timer: Timer, step: &mut Step<'_>) {
        let resumed = match timer {
            Timer::Period(group) => self.hierarchy.period_ends(group),
            Timer::Slack(group) => self.hierarchy.slack_ends(group),
            Timer::Sleep(_) | Timer::Lapic(_) => return,
        };
        for pcpu in resumed {
            if self.rq(pcpu).polling {
                self.poll_ends.push(pcpu);
            }
            // A pCPU that runs a thread notices at its tick.
            if self.rq(pcpu).curr.is_none() && self.nr_running(pcpu) > 0 {
                self.resched(pcpu, step);
            }
        }
        self.resched_overdue(step);
    }

    /// Takes a timer that the scheduler wants to be armed.
    pub(crate) fn next_timer(&mut self) -> Option<(Timer, u64)> {
        self.hierarchy.timers.pop()
    }

    /// Takes a thread whose throttling has changed since the last call.
    pub(crate) fn next_throttle_change(&mut self) -> Option<TaskId> {
        self.hierarchy.throttle_changes.pop()
    }

    /// Returns whether a runnable `task` cannot run because of a quota.
    pub(crate) fn is_throttled(&self, task: TaskId) -> bool {
        self.hierarchy.is_throttled(self.threads[task].entity)
    }

    /// Returns what bandwidth control did to `group` until `now`, or `None` if it has no quota.
    pub(crate) fn throttling(&self, group: GroupId, now: u64) -> Option<Throttling> {
        let at = self.hierarchy.groups.get(group)?;
        let mut counts = at.bandwidth.as_ref()?.counts;
        let queues = at.queues.iter().flatten();
        counts.throttled_ns += queues
            .map(|&queue| self.hierarchy.throttled_since(queue, now))
            .sum::<u64>();
        Some(counts)
    }
}
