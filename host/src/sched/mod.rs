//! The host scheduler: run queues, wake-ups, ticks, balancing, directed yield.
//!
//! - **One place**: a thread is on at most one queue, and runs on at most one pCPU.
//! - **Time is conserved**: what threads ran and pCPUs idled sums to what passed.
//! - **A tick is local**: it touches the ticking pCPU's queues only. Balancing, when due, looks at the pCPUs of one domain.

mod balance;
mod cfs;
mod entity;
mod group;
mod hierarchy;
mod mask;
mod place;
mod policy;
mod runqueue;
mod timeline;
mod topology;
pub(crate) mod weight;
mod yield_to;

#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use cfs::Cfs;
use entity::{Entity, EntityId, Group, QueueId, Stands};
use group::{MAX_SHARES, MIN_SHARES};
use hierarchy::{Departure, Hierarchy, Mark};
use policy::{Arrival, Policy};
use runqueue::{RunQueue, Thread, ThreadState};
use topology::Topology;

pub(crate) use mask::Mask;
pub(crate) use yield_to::YieldTo;

use crate::boundary::{Cost, GroupId, TaskId};
use crate::config::{ConfigError, Features, HostConfig, PcpuPlace, in_range};
use crate::step::Step;

/// The host scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    features: Features,
    migration_cost_ns: u64,
    nr_migrate: u32,
    hz: u64,
    hierarchy: Hierarchy,
    topology: Topology,
    queues: Vec<RunQueue>,
    threads: Vec<Thread>,
    /// pCPUs that run nothing; their ticks are stopped.
    idle: Mask,
    /// When a busy pCPU should next have one of them balance for all. Ticks since power-on.
    next_idle_balance: u64,
    /// Polling pCPUs whose queues grew: to be looked at before the step ends.
    poll_ends: Vec<u32>,
    /// Scratch of balancing.
    scratch: balance::Scratch,
}

impl Scheduler {
    pub(crate) fn new(config: &HostConfig, places: &[PcpuPlace]) -> Result<Scheduler, ConfigError> {
        let topology = Topology::new(places, &config.balance)?;
        let pcpus = places.len();
        let cfs = Cfs::new(config, pcpus as u32);
        let queue = RunQueue {
            avg_idle: 2 * config.balance.migration_cost_ns,
            ..RunQueue::default()
        };
        Ok(Scheduler {
            features: config.features,
            migration_cost_ns: config.balance.migration_cost_ns,
            nr_migrate: config.balance.nr_migrate,
            hz: u64::from(config.hz),
            hierarchy: Hierarchy::new(pcpus as u32, cfs, config.shares_window_ns),
            topology,
            queues: vec![queue; pcpus],
            threads: Vec::new(),
            idle: Mask::new(pcpus),
            next_idle_balance: 0,
            poll_ends: Vec::new(),
            scratch: balance::Scratch::default(),
        })
    }

    /// Adds a task group.
    pub(crate) fn add_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        in_range("shares", shares as i64, MIN_SHARES as i64, MAX_SHARES as i64)?;
        let parent = parent.unwrap_or(GroupId(0));
        self.check_group(parent)?;
        let group = GroupId(self.hierarchy.groups.len() as u32);
        let queues = vec![None; self.queues.len()];
        self.hierarchy.groups.push(Group {
            parent: Some(parent),
            shares,
            load: 0,
            queues,
        });
        Ok(group)
    }

    pub(crate) fn check_group(&self, group: GroupId) -> Result<(), ConfigError> {
        let known = (group.0 as usize) < self.hierarchy.groups.len();
        if known {
            Ok(())
        } else {
            Err(ConfigError::UnknownGroup(group))
        }
    }

    /// Adds a thread, asleep until [`Scheduler::start_thread`].
    pub(crate) fn add_thread(&mut self, weight: u64, group: GroupId, affinity: Option<Mask>) -> TaskId {
        let task = TaskId(self.threads.len() as u32);
        let entity = EntityId(self.hierarchy.entities.len() as u32);
        let pcpu = affinity.as_ref().and_then(Mask::first).unwrap_or(0);
        let queue = self.hierarchy.queue_of(group, pcpu);
        // The group's own entity may have come first.
        let entity = EntityId(entity.0.max(self.hierarchy.entities.len() as u32));
        self.hierarchy
            .entities
            .push(Entity::new(Stands::Task(task), queue, weight));
        self.threads.push(Thread {
            entity,
            group,
            pcpu,
            affinity,
            state: ThreadState::Sleeping,
            on_cpu: false,
            queued_at: 0,
            run_delay: 0,
        });
        task
    }

    pub(crate) fn pcpus(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Tells the scheduler what time it is; before anything else of a step.
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

    /// Ticks since power-on.
    fn jiffies(&self) -> u64 {
        weight::mul_div(self.now(), self.hz, 1_000_000_000)
    }

    fn thread(&self, task: TaskId) -> &Thread {
        &self.threads[task.0 as usize]
    }

    fn thread_mut(&mut self, task: TaskId) -> &mut Thread {
        &mut self.threads[task.0 as usize]
    }

    fn rq(&self, pcpu: u32) -> &RunQueue {
        &self.queues[pcpu as usize]
    }

    fn rq_mut(&mut self, pcpu: u32) -> &mut RunQueue {
        &mut self.queues[pcpu as usize]
    }

    /// Weight of all that is runnable on `pcpu`.
    fn load(&self, pcpu: u32) -> u64 {
        self.hierarchy.queue(self.hierarchy.root(pcpu)).load
    }

    /// Who runs on `pcpu`; `None`: idle.
    pub(crate) fn current(&self, pcpu: u32) -> Option<TaskId> {
        self.rq(pcpu).curr
    }

    pub(crate) fn need_resched(&self, pcpu: u32) -> bool {
        self.rq(pcpu).need_resched
    }

    /// Whether no thread but the running one wants `pcpu`.
    pub(crate) fn runs_alone(&self, pcpu: u32) -> bool {
        self.rq(pcpu).nr_running <= 1
    }

    /// Says whether `pcpu` polls for its halted vCPU.
    pub(crate) fn set_polling(&mut self, pcpu: u32, polling: bool) {
        self.rq_mut(pcpu).polling = polling;
    }

    /// A polling pCPU whose queue grew since it was last asked for.
    pub(crate) fn next_poll_end(&mut self) -> Option<u32> {
        self.poll_ends.pop()
    }

    /// Whether `task` runs or waits for its pCPU.
    pub(crate) fn is_runnable(&self, task: TaskId) -> bool {
        self.thread(task).state == ThreadState::Runnable
    }

    /// Nanoseconds for which `task` was runnable and did not run.
    pub(crate) fn run_delay(&self, task: TaskId) -> u64 {
        self.thread(task).run_delay
    }

    /// Nanoseconds that `task` ran until `now`.
    pub(crate) fn ran(&self, task: TaskId, now: u64) -> u64 {
        let thread = self.thread(task);
        let entity = self.hierarchy.entity(thread.entity);
        entity.sum_exec + if thread.on_cpu { now - entity.exec_start } else { 0 }
    }

    /// Nanoseconds for which `pcpu` ran nothing until `now`.
    pub(crate) fn idle_ns(&self, pcpu: u32, now: u64) -> u64 {
        let queue = self.rq(pcpu);
        queue.idle_ns
            + if queue.curr.is_none() {
                now - queue.idle_begin
            } else {
                0
            }
    }

    /// Makes `pcpu` reschedule as soon as it can.
    fn resched(&mut self, pcpu: u32, step: &mut Step<'_>) {
        let queue = self.rq_mut(pcpu);
        if queue.need_resched {
            return;
        }
        queue.need_resched = true;
        if pcpu != step.pcpu {
            step.ipi(pcpu);
        }
    }

    /// Starts a new thread on the idlest pCPU that it may run on.
    pub(crate) fn start_thread(&mut self, task: TaskId, step: &mut Step<'_>) {
        assert_eq!(
            self.thread(task).state,
            ThreadState::Sleeping,
            "task {} was started twice",
            task.0
        );
        let pcpu = self.place_new(task, step.pcpu);
        self.rehome(task, pcpu);
        let (entity, queue) = (self.thread(task).entity, self.queue_of(task));
        self.hierarchy.account(queue);
        // A child begins where its parent is, or one slice behind the others if that is later.
        let at = self.hierarchy.queue(queue);
        let parent = at
            .curr
            .map_or(at.min_vruntime, |curr| self.hierarchy.entity(curr).vruntime);
        self.hierarchy.entity_mut(entity).vruntime = parent;
        let policy = self.hierarchy.policy;
        let vruntime = policy.place(&self.hierarchy, queue, entity, Arrival::New);
        self.hierarchy.entity_mut(entity).vruntime = vruntime;
        self.hierarchy.make_relative(entity);
        self.activate(task, Arrival::Moved, step);
    }

    fn queue_of(&self, task: TaskId) -> QueueId {
        self.hierarchy.entity(self.thread(task).entity).queue
    }

    /// Gives a thread that is on no queue to `pcpu`.
    fn rehome(&mut self, task: TaskId, pcpu: u32) {
        let (entity, group) = (self.thread(task).entity, self.thread(task).group);
        let queue = self.hierarchy.queue_of(group, pcpu);
        self.hierarchy.entity_mut(entity).queue = queue;
        self.thread_mut(task).pcpu = pcpu;
    }

    /// Wakes a sleeping thread; false if it does not sleep.
    pub(crate) fn wake(&mut self, task: TaskId, step: &mut Step<'_>) -> bool {
        if self.thread(task).state != ThreadState::Sleeping {
            return false;
        }
        step.charge(Cost::Wake, 1);
        self.hierarchy.make_relative(self.thread(task).entity);
        let pcpu = self.place_woken(task, step.pcpu);
        if pcpu != self.thread(task).pcpu {
            self.rehome(task, pcpu);
        }
        if self.features.ttwu_queue && !self.topology.share_cache(step.pcpu, pcpu) {
            self.thread_mut(task).state = ThreadState::Waking;
            let list = &mut self.rq_mut(pcpu).wake_list;
            list.push(task);
            if list.len() == 1 {
                step.ipi(pcpu);
            }
        } else {
            self.activate(task, Arrival::Woken, step);
        }
        true
    }

    /// Puts a thread on its pCPU's queue, and has it preempt if it may.
    fn activate(&mut self, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
        let (entity, pcpu, now) = (self.thread(task).entity, self.thread(task).pcpu, self.now());
        self.hierarchy.enqueue(entity, arrival);
        let thread = self.thread_mut(task);
        thread.state = ThreadState::Runnable;
        thread.queued_at = now;
        let queue = self.rq_mut(pcpu);
        queue.nr_running += 1;
        if queue.polling {
            self.poll_ends.push(pcpu);
        }
        self.check_preempt(pcpu, task, arrival, step);
        let cap = 2 * self.migration_cost_ns;
        let queue = self.rq_mut(pcpu);
        if arrival == Arrival::Woken
            && let Some(since) = queue.idle_since.take()
        {
            let idle = now - since;
            // A long sleep is no measure of how long the next one will be.
            queue.avg_idle = if idle > cap {
                cap
            } else {
                queue.avg_idle - queue.avg_idle / 8 + idle / 8
            };
        }
    }

    /// Reschedules `pcpu` if `task`, just put on its queue, should run instead of what runs.
    fn check_preempt(&mut self, pcpu: u32, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
        let Some(curr) = self.rq(pcpu).curr else {
            return self.resched(pcpu, step);
        };
        let (curr, woken) = (self.thread(curr).entity, self.thread(task).entity);
        let crowded =
            u64::from(self.hierarchy.queue(self.hierarchy.entity(curr).queue).nr) >= self.hierarchy.policy.nr_latency;
        let mut marked = false;
        if self.features.next_buddy && crowded && arrival == Arrival::Woken {
            self.hierarchy.mark(woken, Mark::Next);
            marked = true;
        }
        if self.rq(pcpu).need_resched || !self.features.wakeup_preemption {
            return;
        }
        let (at, woken_at) = self.hierarchy.siblings(curr, woken);
        self.hierarchy.account(self.hierarchy.entity(at).queue);
        let policy = self.hierarchy.policy;
        if !policy.preempts(&self.hierarchy, at, woken_at) {
            return;
        }
        if !marked {
            self.hierarchy.mark(woken_at, Mark::Next);
        }
        self.resched(pcpu, step);
        let at_is_running_thread = at == curr && self.hierarchy.entity(curr).on_rq;
        if self.features.last_buddy && crowded && at_is_running_thread {
            self.hierarchy.mark(curr, Mark::Last);
        }
    }

    /// The running thread of `pcpu` goes to sleep: to be followed by [`Scheduler::schedule`].
    pub(crate) fn sleep(&mut self, pcpu: u32) {
        self.leave(pcpu, ThreadState::Sleeping);
    }

    /// The running thread of `pcpu` ends: to be followed by [`Scheduler::schedule`].
    pub(crate) fn exit(&mut self, pcpu: u32) {
        self.leave(pcpu, ThreadState::Dead);
    }

    fn leave(&mut self, pcpu: u32, state: ThreadState) {
        let task = self.rq(pcpu).curr.expect("only a running thread can go to sleep");
        self.hierarchy.dequeue(self.thread(task).entity, Departure::Sleep);
        self.thread_mut(task).state = state;
        self.rq_mut(pcpu).nr_running -= 1;
    }

    /// Picks who runs on `pcpu` from now on; may pull threads from elsewhere if there is nobody.
    pub(crate) fn schedule(&mut self, pcpu: u32, step: &mut Step<'_>) -> Option<TaskId> {
        let now = self.now();
        let prev = self.rq(pcpu).curr;
        self.rq_mut(pcpu).need_resched = false;
        if let Some(prev) = prev {
            self.hierarchy.put(self.thread(prev).entity);
            let thread = self.thread_mut(prev);
            thread.on_cpu = false;
            thread.queued_at = now;
        } else {
            let queue = self.rq_mut(pcpu);
            queue.idle_ns += now - queue.idle_begin;
        }
        self.rq_mut(pcpu).curr = None;
        self.rq_mut(pcpu).idle_begin = now;
        if let Some(to) = self.rq_mut(pcpu).push_to.take() {
            self.push_one(pcpu, to, step);
        }
        if self.rq(pcpu).nr_running == 0 {
            self.balance_newly_idle(pcpu, step);
        }
        let next = self.hierarchy.pick(pcpu);
        if let Some(next) = next {
            let thread = self.thread_mut(next);
            thread.on_cpu = true;
            thread.run_delay += now - thread.queued_at;
        }
        let queue = self.rq_mut(pcpu);
        queue.curr = next;
        queue.need_resched = false;
        self.idle.set(pcpu, next.is_none());
        next
    }

    /// The handler of a reschedule IPI on `pcpu`, which executes the step.
    pub(crate) fn interrupt(&mut self, pcpu: u32, step: &mut Step<'_>) {
        while let Some(task) = self.rq_mut(pcpu).wake_list.pop() {
            self.activate(task, Arrival::Woken, step);
        }
        if self.rq(pcpu).push_to.is_some() {
            self.rq_mut(pcpu).need_resched = true;
        }
        if core::mem::take(&mut self.rq_mut(pcpu).balance_idle) && self.rq(pcpu).curr.is_none() {
            self.balance_for_idle(pcpu, step);
        }
    }

    /// The scheduler tick of `pcpu`, which executes the step.
    pub(crate) fn tick(&mut self, pcpu: u32, step: &mut Step<'_>) {
        step.charge(Cost::Tick, 1);
        let (jiffies, load) = (self.jiffies(), self.load(pcpu));
        self.rq_mut(pcpu).update_load(jiffies, load);
        if let Some(curr) = self.rq(pcpu).curr
            && self.hierarchy.tick(self.thread(curr).entity)
        {
            self.resched(pcpu, step);
        }
        self.balance_at_tick(pcpu, jiffies, step);
    }
}
