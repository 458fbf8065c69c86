//! The life of a thread: it starts, sleeps, is woken, is picked, and is interrupted by ticks and other pCPUs.

use super::Scheduler;
use super::buddy::Mark;
use super::entity::QueueId;
use super::hierarchy::Departure;
use super::policy::{Arrival, Policy};
use super::runqueue::ThreadState;
use crate::boundary::{Cost, TaskId};
use crate::step::Step;

impl Scheduler {
    /// Makes `pcpu` reschedule as soon as it can.
    pub(super) fn resched(&mut self, pcpu: u32, step: &mut Step<'_>) {
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
    pub(super) fn rehome(&mut self, task: TaskId, pcpu: u32) {
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
    pub(super) fn activate(&mut self, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
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
