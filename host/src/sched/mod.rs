//! The host scheduler: run queues, wakeups, ticks, balancing, directed yield.
//!
//! - **One place**: a thread is on at most one queue, and runs on at most one pCPU.
//! - **Time is conserved**: the run time of threads and the idle time of pCPUs add up to the time passed.
//! - **A tick is local**: it touches the ticking pCPU's queues only. Balancing, when due, examines the pCPUs of one
//!   domain.
//!
//! The differences between kernels are in [`config`]. These simplifications are the same for all of them:
//!
//! - A balancing pass is that of 3.3 with the loads of each kernel, without the group types of 4.x and the rewrite of
//!   5.5.
//! - A group's tracked load follows its weight, and is not propagated from below.
//! - Newly idle passes have no measured cost, and there is no `recent_used_cpu`.
//! - Threads are throttled where they are, as until the mid-2020s, not at their return to the guest.

mod average;
mod balance;
mod bandwidth;
mod buddy;
mod cfs;
pub(crate) mod config;
mod eevdf;
mod entity;
mod fault;
pub(crate) mod features;
mod group;
mod hierarchy;
mod ids;
mod levels;
mod mask;
mod pelt;
mod place;
mod policy;
mod quota;
mod run;
mod runqueue;
mod scan;
pub(crate) mod seam;
mod timeline;
mod topology;
pub(crate) mod weight;

#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use config::Preempt;
use entity::{Entity, EntityKind, Group};
use features::Features;
use hierarchy::Hierarchy;
use policy::Rules;
use runqueue::{RunQueue, Thread, ThreadState};
use seam::{GuestView, Pause, Seam, parts};
use topology::Topology;

pub use group::GROUP_DEPTH_MAX;
pub(crate) use mask::Mask;
pub use quota::Throttling;

use crate::boundary::{GroupId, PcpuId, PcpuPlace, TaskId, VcpuId, VmId};
use crate::config::HostConfig;
use crate::error::ConfigError;
use crate::ids::IdVec;

/// The host scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    features: Features,
    preempt: Preempt,
    migration_cost_ns: u64,
    nr_migrate: u32,
    /// See [`BalanceConfig`](config::BalanceConfig).
    halves_differences: bool,
    hz: u64,
    hierarchy: Hierarchy,
    seam: Seam,
    topology: Topology,
    queues: IdVec<PcpuId, RunQueue>,
    threads: IdVec<TaskId, Thread>,
    /// pCPUs that run nothing. Their ticks are stopped.
    idle: Mask,
    /// Last-level caches that may have a completely idle core.
    idle_cores: Mask,
    /// For each last-level cache the number of pCPUs that a search for an idle one examines (`nr_idle_scan`).
    idle_scans: Vec<u64>,
    /// When a busy pCPU next asks an idle one to balance for all idle ones. Ticks since power-on.
    next_idle_balance: u64,
    /// Polling pCPUs whose queues have grown. They are examined before the step ends.
    pub(crate) poll_ends: Vec<u32>,
    /// pCPUs that the present balancing pass found to have only pinned threads. Passes reuse the buffer.
    excluded: Vec<u32>,
}

impl Scheduler {
    pub(crate) fn new(config: &HostConfig, places: &[PcpuPlace]) -> Result<Scheduler, ConfigError> {
        let sched = &config.sched;
        let topology = Topology::new(places, &sched.balance)?;
        let pcpus = places.len();
        let caches = places.iter().map(|place| place.socket as usize + 1).max().unwrap_or(0);
        let rules = Rules::new(sched, pcpus as u32, 1_000_000_000 / u64::from(config.hz));
        let queue = RunQueue {
            avg_idle: 2 * sched.balance.migration_cost_ns,
            ..RunQueue::default()
        };
        Ok(Scheduler {
            features: sched.features,
            preempt: sched.preempt,
            migration_cost_ns: sched.balance.migration_cost_ns,
            nr_migrate: sched.balance.nr_migrate,
            halves_differences: sched.balance.halves_differences,
            hz: u64::from(config.hz),
            hierarchy: Hierarchy::new(pcpus as u32, rules, sched),
            seam: Seam::new(config, pcpus),
            topology,
            queues: IdVec::filled(queue, pcpus),
            threads: IdVec::new(),
            idle: Mask::new(pcpus),
            idle_cores: Mask::new(caches),
            idle_scans: vec![0; caches],
            next_idle_balance: 0,
            poll_ends: Vec::new(),
            excluded: Vec::new(),
        })
    }

    /// Returns the number of task groups, the root included.
    pub(crate) fn groups(&self) -> u32 {
        self.hierarchy.groups.len() as u32
    }

    /// Adds a task group.
    pub(crate) fn add_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        let parent = parent.unwrap_or_default();
        self.check_group(parent)?;
        self.hierarchy.check_place(parent, shares)?;
        let group = self.hierarchy.groups.next_id();
        self.hierarchy.groups[parent].children.push(group);
        let queues = vec![None; self.queues.len()];
        self.hierarchy.groups.push(Group {
            parent: Some(parent),
            shares,
            queues,
            ..Group::default()
        });
        Ok(group)
    }

    /// Checks that `levels` more levels of groups may stand below `parent`.
    pub(crate) fn check_depth(&self, parent: GroupId, levels: usize) -> Result<(), ConfigError> {
        self.hierarchy.check_depth(parent, levels)
    }

    pub(crate) fn check_group(&self, group: GroupId) -> Result<(), ConfigError> {
        let found = self.hierarchy.groups.get(group);
        found.map(|_| ()).ok_or(ConfigError::UnknownGroup(group))
    }

    /// Adds a thread, asleep until [`Scheduler::start_thread`].
    pub(crate) fn add_thread(&mut self, weight: u64, group: GroupId, affinity: Option<Mask>) -> TaskId {
        let task = self.threads.next_id();
        let pcpu = affinity.as_ref().and_then(Mask::first).unwrap_or(0);
        let queue = self.hierarchy.queue_of(group, pcpu);
        let entity = self
            .hierarchy
            .entities
            .push(Entity::new(EntityKind::Task(task), queue, weight));
        self.threads.push(Thread {
            entity,
            group,
            pcpu,
            affinity,
            ..Thread::default()
        });
        task
    }

    pub(crate) fn pcpus(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Sets the present time. Must precede everything else in a step.
    pub(crate) fn begin(&mut self, now: u64) {
        assert!(
            now >= self.hierarchy.now,
            "time went back from {} ns to {now} ns",
            self.hierarchy.now
        );
        self.hierarchy.now = now;
    }

    fn now(&self) -> u64 {
        self.hierarchy.now
    }

    /// Returns the ticks since power-on.
    fn jiffies(&self) -> u64 {
        weight::mul_div(self.now(), self.hz, 1_000_000_000)
    }

    fn rq(&self, pcpu: u32) -> &RunQueue {
        &self.queues[PcpuId(pcpu)]
    }

    fn rq_mut(&mut self, pcpu: u32) -> &mut RunQueue {
        &mut self.queues[PcpuId(pcpu)]
    }

    /// Returns the weight of all runnable entities on `pcpu`.
    fn load(&self, pcpu: u32) -> u64 {
        self.hierarchy.queue_load(self.hierarchy.root(pcpu))
    }

    /// Returns the number of runnable threads on `pcpu`, the running one included.
    fn nr_running(&self, pcpu: u32) -> u32 {
        self.hierarchy.queues[self.hierarchy.root(pcpu)].runnable
    }

    /// Returns whether nothing runs on `pcpu`, and nothing is about to.
    fn is_idle(&self, pcpu: u32) -> bool {
        let queue = self.rq(pcpu);
        queue.curr.is_none() && queue.wake_list.is_empty() && self.nr_running(pcpu) == 0
    }

    /// Returns when the slice of the running thread of `pcpu` ends as things stand now, or `None` if no other thread
    /// waits there. Nanoseconds. A wakeup may end it earlier.
    pub(crate) fn slice_told(&self, pcpu: u32) -> Option<u64> {
        let queue = self.rq(pcpu);
        let curr = queue.curr.filter(|_| self.nr_running(pcpu) > 1)?;
        let (on, now) = (&self.hierarchy, self.now());
        if let Some(own) = self.seam.slice_until(pcpu) {
            return Some(own);
        }
        let contended = on
            .path(self.threads[curr].entity)
            .filter(|&at| on.queues[on.entities[at].queue].nr > 1);
        let rest = |at| {
            let entity = &on.entities[at];
            let since = now.saturating_sub(entity.exec_start);
            match on.policy {
                Rules::Cfs(cfs) => {
                    let ran = entity.sum_exec - entity.prev_sum_exec + since;
                    // It ends when it is exceeded.
                    (cfs.slice(on, at) + 1).saturating_sub(ran)
                }
                Rules::Eevdf(eevdf) => eevdf.rest(on, at).saturating_sub(since),
            }
        };
        let end = now + contended.map(rest).min()?;
        if self.features.slice_timer {
            return Some(end);
        }
        // It ends on the first tick from then on.
        let tick = 1_000_000_000 / self.hz;
        let after = end.saturating_sub(queue.ticked_at).div_ceil(tick).max(1);
        Some(queue.ticked_at + after * tick)
    }

    /// Returns the running thread of `pcpu`, or `None` if it is idle.
    pub(crate) fn current(&self, pcpu: u32) -> Option<TaskId> {
        self.rq(pcpu).curr
    }

    pub(crate) fn need_resched(&self, pcpu: u32) -> bool {
        self.rq(pcpu).need_resched
    }

    /// Returns whether no thread but the running one wants `pcpu`.
    pub(crate) fn runs_alone(&self, pcpu: u32) -> bool {
        self.nr_running(pcpu) <= 1
    }

    /// Records whether `pcpu` polls for its halted vCPU.
    pub(crate) fn set_polling(&mut self, pcpu: u32, polling: bool) {
        self.rq_mut(pcpu).polling = polling;
    }

    /// Returns whether `task` runs or waits for its pCPU.
    pub(crate) fn is_runnable(&self, task: TaskId) -> bool {
        self.threads[task].state == ThreadState::Runnable
    }

    /// Sets whether `task` is voluntary.
    pub(crate) fn set_voluntary(&mut self, task: TaskId, voluntary: bool) {
        self.threads[task].voluntary = voluntary;
    }

    /// Returns whether `task` is on the queue of `pcpu` and does not run.
    pub(crate) fn waits_for(&self, task: TaskId, pcpu: u32) -> bool {
        let thread = &self.threads[task];
        thread.state == ThreadState::Runnable && thread.pcpu == pcpu && !thread.on_cpu
    }

    /// Returns whether `task` has never been started, or has ended.
    pub(crate) fn can_start(&self, task: TaskId) -> bool {
        let thread = &self.threads[task];
        match thread.state {
            ThreadState::Dead => !thread.on_cpu,
            ThreadState::Sleeping => !thread.started,
            ThreadState::Waking | ThreadState::Runnable => false,
        }
    }

    /// Records that `task` was made for `vcpu` of `vm`.
    pub(crate) fn add_vcpu(&mut self, vm: VmId, vcpu: VcpuId, task: TaskId) {
        self.seam.add_vcpu(vm, vcpu, task);
    }

    /// Records how `vcpu` left guest mode, for a policy.
    #[inline]
    pub(crate) fn exited(&mut self, vcpu: VcpuId, seen: GuestView) {
        if !self.seam.is_kernel() {
            self.seam.exited(vcpu, seen);
        }
    }

    /// Returns what `spinner` does after a pause exit.
    pub(crate) fn pause_exit(&mut self, spinner: VcpuId) -> Pause {
        self.seam.pause_exit(parts!(self), spinner)
    }

    /// Returns whether `from`, which has kicked `to`, yields to it, as `kernel` or the policy says.
    pub(crate) fn kick_yields(&mut self, from: VcpuId, to: VcpuId, kernel: bool) -> bool {
        self.seam.kick_yields(parts!(self), from, to, kernel)
    }

    /// Tells the policy that `from` has sent `to` an interrupt.
    pub(crate) fn ipi_sent(&mut self, from: VcpuId, to: VcpuId) {
        self.seam.ipi(parts!(self), from, to);
    }

    /// Returns the policy's result of hypercall `number`, which the host does not know.
    pub(crate) fn hint(&mut self, from: VcpuId, number: u64, arguments: [u64; 4]) -> Option<u64> {
        self.seam.hint(parts!(self), from, number, arguments)
    }

    /// Returns the number of answers of the policy that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.seam.refused
    }

    /// Returns how long `task` has been runnable without running. Nanoseconds.
    pub(crate) fn run_delay(&self, task: TaskId) -> u64 {
        self.threads[task].run_delay
    }

    /// Returns whether `task` sleeps, has not started, or has ended.
    pub(crate) fn is_asleep(&self, task: TaskId) -> bool {
        matches!(self.threads[task].state, ThreadState::Sleeping | ThreadState::Dead)
    }

    /// Returns how long `task` has run until `now`. Nanoseconds.
    pub(crate) fn ran(&self, task: TaskId, now: u64) -> u64 {
        let thread = &self.threads[task];
        let entity = &self.hierarchy.entities[thread.entity];
        entity.sum_exec + if thread.on_cpu { now - entity.exec_start } else { 0 }
    }

    /// Returns how long `pcpu` has run nothing until `now`. Nanoseconds.
    pub(crate) fn idle_ns(&self, pcpu: u32, now: u64) -> u64 {
        let queue = self.rq(pcpu);
        queue.idle_ns
            + if queue.curr.is_none() {
                now - queue.idle_begin
            } else {
                0
            }
    }
}
