//! The life of a thread: starting, sleeping, waking, picking, yielding, ticks and interrupts from other pCPUs.
//!
//! A directed yield is a hint on both sides (docs/spec/host.md, "Yield and directed yield"). The target is preferred on
//! *its* pCPU as far as fairness allows. The yielder is passed over once on its own. No thread migrates.

use super::Scheduler;
use super::config::Preempt;
use super::entity::Mark;
use super::policy::{Arrival, Departure};
use super::runqueue::ThreadState;
use super::seam::{Yield, parts};
use super::weight::scaled;
use crate::boundary::{Command, Cost, PcpuId, TaskId};
use crate::step::Step;

/// The shortest time for which the timer that ends slices is armed (`hrtick_start`). Nanoseconds.
const SLICE_TIMER_MIN_NS: u64 = 10_000;

impl Scheduler {
    /// Makes `pcpu` reschedule as soon as it can.
    pub(super) fn resched(&mut self, pcpu: u32, step: &mut Step<'_>) {
        let queue = self.rq_mut(pcpu);
        if queue.need_resched && !queue.lazily {
            return;
        }
        queue.need_resched = true;
        queue.lazily = false;
        if pcpu != step.pcpu {
            step.ipi(pcpu);
        }
    }

    /// Makes `pcpu` reschedule in favor of a thread of fair scheduling (`resched_curr_lazy`). Under lazy preemption a
    /// pCPU that runs a thread does so at its next exit or tick, and gets no IPI.
    fn resched_fair(&mut self, pcpu: u32, step: &mut Step<'_>) {
        if self.preempt != Preempt::Lazy || pcpu == step.pcpu || self.rq(pcpu).curr.is_none() {
            return self.resched(pcpu, step);
        }
        let queue = self.rq_mut(pcpu);
        if !queue.need_resched {
            queue.need_resched = true;
            queue.lazily = true;
        }
    }

    /// Starts a new thread on the idlest pCPU that it may run on.
    pub(crate) fn start_thread(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.create_thread(task, step);
        self.hierarchy.make_relative(self.threads[task].entity);
        self.activate(task, Arrival::New, step);
    }

    /// Creates a new thread on its first pCPU, or on the idlest that it may run on. It sleeps there.
    pub(crate) fn create_thread(&mut self, task: TaskId, step: &mut Step<'_>) {
        assert!(self.can_start(task), "task {} was started twice", task.0);
        self.threads[task].started = true;
        self.threads[task].state = ThreadState::Sleeping;
        let pcpu = (self.take_first(task)).unwrap_or_else(|| self.place_new(task, step.pcpu));
        let pcpu = self.seam.place(parts!(self), task, pcpu);
        self.threads[task].recently_used = step.pcpu;
        self.rehome(task, pcpu);
        let entity = self.threads[task].entity;
        let queue = self.hierarchy.entities[entity].queue;
        self.hierarchy.account(queue);
        let policy = self.hierarchy.policy;
        policy.fork(&mut self.hierarchy, queue, entity);
    }

    /// Moves a thread that is on no queue to `pcpu`.
    pub(super) fn rehome(&mut self, task: TaskId, pcpu: u32) {
        let (entity, group) = (self.threads[task].entity, self.threads[task].group);
        let queue = self.hierarchy.queue_of(group, pcpu);
        if self.hierarchy.entities[entity].queue != queue {
            self.hierarchy.uncount(entity);
        }
        self.hierarchy.entities[entity].queue = queue;
        self.threads[task].pcpu = pcpu;
    }

    /// Wakes a sleeping thread. Returns `false` if it does not sleep.
    pub(crate) fn wake(&mut self, task: TaskId, step: &mut Step<'_>) -> bool {
        if self.threads[task].state != ThreadState::Sleeping {
            return false;
        }
        let voluntary = self.threads[task].voluntary;
        if self.features.wake_wide
            && let Some(waker) = self.rq(step.pcpu).curr
        {
            let (tick, hz) = (self.jiffies(), self.hz);
            self.threads[waker].wakes.record(task, tick, hz);
        }
        if self.hierarchy.entities[self.threads[task].entity].delayed {
            if !voluntary {
                step.charge(Cost::Wake, 1);
            }
            self.wake_in_place(task, step);
            return true;
        }
        self.hierarchy.make_relative(self.threads[task].entity);
        let pcpu = self.place_woken(task, step.pcpu, step.sync);
        let pcpu = self.seam.place(parts!(self), task, pcpu);
        if pcpu != self.threads[task].pcpu {
            self.rehome(task, pcpu);
        }
        let by_ipi = self.features.ttwu_queue && !self.topology.share_cache(step.pcpu, pcpu);
        if !voluntary {
            step.charge(Cost::Wake, 1);
        }
        if by_ipi {
            self.threads[task].state = ThreadState::Waking;
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

    /// Wakes a thread that sleeps and is still on its queue, delayed.
    fn wake_in_place(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.hierarchy.wake_delayed(self.threads[task].entity);
        self.became_runnable(task, Arrival::Woken, step);
        self.leave_forbidden(task, step);
        self.resched_overdue(step);
    }

    /// Handles that `task` has arrived at its pCPU's queue.
    fn became_runnable(&mut self, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
        let (entity, pcpu, now) = (self.threads[task].entity, self.threads[task].pcpu, self.now());
        let thread = &mut self.threads[task];
        thread.state = ThreadState::Runnable;
        thread.queued_at = now;
        if thread.voluntary {
            step.out.push(Command::TaskWaits {
                task,
                pcpu: PcpuId(pcpu),
            });
        }
        if self.hierarchy.is_throttled(entity) {
            self.hierarchy.throttle_changes.push(task);
            return;
        }
        if self.rq(pcpu).polling {
            self.poll_ends.push(pcpu);
        }
        let alone_until_now = self.nr_running(pcpu) == 2 && self.rq(pcpu).slice_timer.is_none();
        if self.features.slice_timer && pcpu != step.pcpu && alone_until_now {
            // Its running thread needed no timer. Linux has it armed by an interrupt, too (`hrtick_update`).
            step.ipi(pcpu);
        }
        self.check_preempt(pcpu, task, arrival, step);
    }

    /// Puts a thread on its pCPU's queue, and lets it preempt if it may.
    pub(super) fn activate(&mut self, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
        let (entity, pcpu, now) = (self.threads[task].entity, self.threads[task].pcpu, self.now());
        self.hierarchy.enqueue(entity, arrival);
        self.became_runnable(task, arrival, step);
        let cap = 2 * self.migration_cost_ns;
        let queue = self.rq_mut(pcpu);
        if arrival == Arrival::Woken
            && let Some(since) = queue.idle_since.take()
        {
            let idle = now - since;
            // A long sleep does not predict the next one.
            queue.avg_idle = if idle > cap {
                cap
            } else {
                queue.avg_idle - queue.avg_idle / 8 + idle / 8
            };
        }
        self.resched_overdue(step);
    }

    /// Reschedules pCPUs whose running thread came to the end of its slice or quota between ticks.
    pub(super) fn resched_overdue(&mut self, step: &mut Step<'_>) {
        while let Some(pcpu) = self.hierarchy.overdue.pop() {
            if self.slice_ends(pcpu) {
                self.resched_fair(pcpu, step);
            }
        }
    }

    /// Returns whether the slice of the running thread of `pcpu` ends now, as the scheduler wants. It does not while a
    /// policy's own slice lasts, unless a quota is spent.
    fn slice_ends(&self, pcpu: u32) -> bool {
        let Some(curr) = self.rq(pcpu).curr else { return false };
        self.seam.slice_ends(self.now(), pcpu) || self.hierarchy.is_out_of_quota(self.threads[curr].entity)
    }

    /// Returns whether the running thread of `pcpu`, which is to be rescheduled, runs on for a while because of a
    /// policy. It does not if it must leave: its quota is spent, it may not run here, or another pCPU pulls it.
    pub(crate) fn runs_on(&mut self, pcpu: u32) -> bool {
        if self.seam.is_kernel() {
            return false;
        }
        let Some(task) = self.rq(pcpu).curr else { return false };
        let thread = &self.threads[task];
        let stays = thread.state == ThreadState::Runnable
            && thread.may_run_on(pcpu)
            && self.rq(pcpu).push_to.is_none()
            && !self.runs_alone(pcpu)
            && !self.hierarchy.is_out_of_quota(thread.entity);
        if !stays || !self.seam.runs_on(parts!(self), pcpu, task) {
            return false;
        }
        let queue = self.rq_mut(pcpu);
        (queue.need_resched, queue.lazily) = (false, false);
        true
    }

    /// Returns whether the running thread of `pcpu` runs on after its slice because of a policy.
    pub(crate) fn has_grace(&self, pcpu: u32) -> bool {
        self.seam.has_grace(pcpu)
    }

    /// Ends the time for which the running thread of `pcpu` runs on after its slice, if it does. The policy is asked
    /// again.
    pub(crate) fn end_grace(&mut self, pcpu: u32) {
        if self.seam.has_grace(pcpu) {
            self.seam.end_grace(pcpu, self.now());
            self.rq_mut(pcpu).need_resched = true;
        }
    }

    /// Ends the slice of the running thread of `pcpu`, which executes the step.
    pub(crate) fn end_slice(&mut self, pcpu: u32) {
        self.rq_mut(pcpu).need_resched |= !self.runs_alone(pcpu);
    }

    /// Reschedules `pcpu` if `task`, which was just put on its queue, should run instead of the running thread.
    fn check_preempt(&mut self, pcpu: u32, task: TaskId, arrival: Arrival, step: &mut Step<'_>) {
        let Some(running) = self.rq(pcpu).curr else {
            return self.resched(pcpu, step);
        };
        let (curr, woken) = (self.threads[running].entity, self.threads[task].entity);
        let crowded =
            u64::from(self.hierarchy.queues[self.hierarchy.entities[curr].queue].nr) >= self.hierarchy.policy.crowd();
        let mut marked = false;
        if self.features.next_buddy && crowded && arrival == Arrival::Woken {
            self.hierarchy.mark(woken, Mark::Next);
            marked = true;
        }
        let queue = self.rq(pcpu);
        let asks = self.features.wakeup_preemption || !self.seam.is_kernel();
        if queue.need_resched && !queue.lazily || !asks {
            return;
        }
        let (at, woken_at) = self.hierarchy.siblings(curr, woken);
        self.hierarchy.account(self.hierarchy.entities[at].queue);
        let policy = self.hierarchy.policy;
        let preempts = self.features.wakeup_preemption && policy.preempts(&self.hierarchy, at, woken_at);
        if !self.seam.preempts(parts!(self), task, running, preempts) {
            return;
        }
        if !marked {
            self.hierarchy.mark(woken_at, Mark::Next);
        }
        self.resched_fair(pcpu, step);
        let at_is_running_thread = at == curr && self.hierarchy.entities[curr].on_rq;
        if self.features.last_buddy && crowded && at_is_running_thread {
            self.hierarchy.mark(curr, Mark::Last);
        }
    }

    /// Puts the running thread of `pcpu` to sleep. [`Scheduler::schedule`] must follow.
    pub(crate) fn sleep(&mut self, pcpu: u32) {
        self.leave(pcpu, ThreadState::Sleeping);
    }

    /// Ends the running thread of `pcpu`. [`Scheduler::schedule`] must follow.
    pub(crate) fn exit(&mut self, pcpu: u32) {
        self.leave(pcpu, ThreadState::Dead);
    }

    fn leave(&mut self, pcpu: u32, state: ThreadState) {
        let task = self.rq(pcpu).curr.expect("only a running thread can go to sleep");
        let departure = match state {
            ThreadState::Dead => Departure::Final,
            _ => Departure::Sleep,
        };
        let entity = self.threads[task].entity;
        self.hierarchy.dequeue(entity, departure);
        if state == ThreadState::Dead {
            self.hierarchy.uncount(entity);
        }
        self.threads[task].state = state;
    }

    /// Lets the running thread, whose caches have lost their value, leave for the idlest pCPU (`sched_exec`). Returns
    /// that pCPU, or `None` if it is the same. [`Scheduler::schedule`] and then [`Scheduler::arrive`] must follow.
    pub(crate) fn leave_for_exec(&mut self, task: TaskId, step: &mut Step<'_>) -> Option<u32> {
        let (from, to) = (step.pcpu, self.place_new(task, step.pcpu));
        let to = self.seam.place(parts!(self), task, to);
        if to == from {
            return None;
        }
        // The stopper thread runs for a moment.
        step.charge(Cost::ContextSwitch, 1);
        self.hierarchy.dequeue(self.threads[task].entity, Departure::Move);
        self.threads[task].state = ThreadState::Sleeping;
        Some(to)
    }

    /// Puts a thread that left for `to` on its queue there.
    pub(crate) fn arrive(&mut self, task: TaskId, to: u32, step: &mut Step<'_>) {
        self.rehome(task, to);
        self.activate(task, Arrival::Moved, step);
    }

    /// Picks the thread that runs on `pcpu` from now on. Pulls threads from elsewhere if there is none.
    pub(crate) fn schedule(&mut self, pcpu: u32, step: &mut Step<'_>) -> Option<TaskId> {
        let now = self.now();
        let prev = self.rq(pcpu).curr;
        self.note_busy(pcpu);
        self.rq_mut(pcpu).need_resched = false;
        if let Some(prev) = prev {
            let uncharged = self.seam.uncharged(pcpu);
            if uncharged > 0 {
                self.take_back(prev, uncharged);
            }
            self.hierarchy.put(self.threads[prev].entity);
            let thread = &mut self.threads[prev];
            thread.on_cpu = false;
            thread.queued_at = now;
        } else {
            let queue = self.rq_mut(pcpu);
            queue.idle_ns += now - queue.idle_begin;
        }
        self.rq_mut(pcpu).curr = None;
        self.rq_mut(pcpu).idle_begin = now;
        if let Some(prev) = prev {
            self.leave_forbidden(prev, step);
        }
        if let Some(to) = self.rq_mut(pcpu).push_to.take() {
            self.push_one(pcpu, to, step);
        }
        if self.nr_running(pcpu) == 0 {
            self.balance_newly_idle(pcpu, step);
        }
        let prev = prev.map(|prev| self.threads[prev].entity);
        let next = self.hierarchy.pick(pcpu, prev);
        let next = self.seam.pick(parts!(self), pcpu, next);
        if let Some(next) = next {
            if self.threads[next].pcpu != pcpu {
                self.move_to(next, pcpu, step);
            }
            self.hierarchy.set_next(self.threads[next].entity, prev);
            let thread = &mut self.threads[next];
            thread.on_cpu = true;
            thread.run_delay += now - thread.queued_at;
        }
        let queue = self.rq_mut(pcpu);
        queue.curr = next;
        queue.need_resched = false;
        self.idle.set(pcpu, next.is_none());
        self.seam.picked(parts!(self), pcpu, next);
        if next.is_none() {
            self.note_idle_core(pcpu);
        }
        // An overdue thread of this pCPU has been replaced.
        self.hierarchy.overdue.retain(|&overdue| overdue != pcpu);
        self.resched_overdue(step);
        next
    }

    /// Handles a reschedule IPI on `pcpu`, which executes the step.
    pub(crate) fn interrupt(&mut self, pcpu: u32, step: &mut Step<'_>) {
        while let Some(task) = self.rq_mut(pcpu).wake_list.pop() {
            if !self.threads[task].may_run_on(pcpu) {
                self.rehome(task, self.fallback(task));
            }
            self.activate(task, Arrival::Woken, step);
        }
        if self.rq(pcpu).push_to.is_some() {
            self.rq_mut(pcpu).need_resched = true;
        }
        if core::mem::take(&mut self.rq_mut(pcpu).balance_idle) && self.rq(pcpu).curr.is_none() {
            self.balance_for_idle(pcpu, step);
        }
    }

    /// Arms the timer that ends the slice of the running thread of `pcpu` (`hrtick_start_fair`), if there is another
    /// thread: that of the lowest level on which it has a competitor. Slices of groups above end with it, or at a tick.
    /// Otherwise a timer that is armed stays so, until the pCPU is idle. Returns when it expires. Nanoseconds.
    pub(crate) fn arm_slice_timer(&mut self, pcpu: u32) -> Option<u64> {
        let end = self.slice_end(pcpu);
        let idle = self.rq(pcpu).curr.is_none();
        let queue = self.rq_mut(pcpu);
        queue.slice_timer = end.or(queue.slice_timer.filter(|_| !idle));
        let kernels = queue.slice_timer;
        match self.seam.slice_until(pcpu) {
            Some(own) => Some(kernels.map_or(own, |at| at.min(own))),
            None => kernels,
        }
    }

    fn slice_end(&self, pcpu: u32) -> Option<u64> {
        let curr = self.rq(pcpu).curr.filter(|_| self.features.slice_timer)?;
        if self.nr_running(pcpu) < 2 {
            return None;
        }
        let on = &self.hierarchy;
        let contended = on
            .path(self.threads[curr].entity)
            .find(|&at| on.queues[on.entities[at].queue].nr > 1)?;
        let at = on.entities[contended].exec_start + on.policy.rest(on, contended)?;
        // Linux arms no shorter timer.
        Some(at.max(self.now() + SLICE_TIMER_MIN_NS))
    }

    /// Returns whether the timer that ends slices has expired on `pcpu`.
    pub(crate) fn slice_due(&self, pcpu: u32) -> bool {
        self.is_due(self.rq(pcpu).slice_timer) || self.is_due(self.seam.slice_until(pcpu))
    }

    fn is_due(&self, at: Option<u64>) -> bool {
        at.is_some_and(|at| at <= self.now())
    }

    /// Handles the timer that ends slices, on `pcpu`, which executes the step. Like the tick it preempts under lazy
    /// preemption, too.
    pub(crate) fn slice_timer(&mut self, pcpu: u32, step: &mut Step<'_>) {
        let kernel = self.is_due(self.rq(pcpu).slice_timer);
        if !kernel && self.runs_alone(pcpu) {
            let running = self.rq(pcpu).curr;
            return self.seam.drop_slice(parts!(self), pcpu, running);
        }
        if kernel {
            self.rq_mut(pcpu).slice_timer = None;
        }
        let Some(curr) = self.rq(pcpu).curr else { return };
        let mut at = Some(self.threads[curr].entity);
        while let Some(id) = at {
            self.hierarchy.account(self.hierarchy.entities[id].queue);
            at = self.hierarchy.parent(id);
        }
        if self.slice_ends(pcpu) {
            self.resched(pcpu, step);
        }
        self.resched_overdue(step);
    }

    /// Handles the scheduler tick of `pcpu`, which executes the step.
    pub(crate) fn tick(&mut self, pcpu: u32, step: &mut Step<'_>) {
        step.charge(Cost::Tick, 1);
        let (jiffies, load) = (self.jiffies(), self.load(pcpu));
        self.rq_mut(pcpu).update_load(jiffies, load);
        self.rq_mut(pcpu).ticked_at = self.now();
        if let Some(curr) = self.rq(pcpu).curr
            && self.hierarchy.tick(self.threads[curr].entity)
            && self.slice_ends(pcpu)
        {
            self.resched(pcpu, step);
        }
        self.resched_overdue(step);
        self.balance_at_tick(pcpu, jiffies, step);
    }

    /// Makes the running thread of `pcpu` yield to `target`, which is preferred then. If that is done, the caller must
    /// call [`Scheduler::schedule`]. Returns `false` if the target runs, is not runnable or is throttled, or the
    /// scheduler has no directed yield.
    pub(crate) fn yield_to(&mut self, pcpu: u32, target: TaskId, step: &mut Step<'_>) -> bool {
        if !self.features.yield_to && self.seam.is_kernel() {
            return false;
        }
        let to = &self.threads[target];
        let waits = !to.on_cpu && to.state == ThreadState::Runnable;
        if !waits || self.hierarchy.is_throttled(to.entity) {
            return false;
        }
        let (there, entity) = (to.pcpu, to.entity);
        let from = self.rq(pcpu).curr;
        let how = from.map_or(Yield::Kernel, |from| self.seam.yields(parts!(self), pcpu, from, target));
        match how {
            Yield::Kernel if self.features.yield_to => {}
            Yield::Kernel | Yield::Refuse => return false,
            Yield::Penalty(ns) => self.penalize(pcpu, target, ns.0),
            Yield::Handover => {
                if there != pcpu {
                    self.move_to(target, pcpu, step);
                }
                self.seam.hand_over(pcpu, target);
                return true;
            }
        }
        self.hierarchy.mark(entity, Mark::Next);
        self.yield_current(pcpu);
        if there != pcpu {
            self.resched(there, step);
        }
        true
    }

    /// Lets `task` take the pCPU for which it waits. Returns `false` if it does not wait for one.
    pub(crate) fn boost(&mut self, task: TaskId, step: &mut Step<'_>) -> bool {
        let Some(pcpu) = self.seam.boost(parts!(self), task) else {
            return false;
        };
        self.resched(pcpu, step);
        true
    }

    /// A fault planted by tests: takes `ns` off what `task`, which runs, is charged.
    fn take_back(&mut self, task: TaskId, ns: u64) {
        let mut at = Some(self.threads[task].entity);
        while let Some(id) = at {
            self.hierarchy.account(self.hierarchy.entities[id].queue);
            let entity = &mut self.hierarchy.entities[id];
            entity.vruntime = entity.vruntime.wrapping_sub(scaled(ns, entity.weight));
            at = self.hierarchy.parent(id);
        }
    }

    /// Charges the running thread of `pcpu` for `ns` that it has not run, in the queue that it shares with `target`.
    fn penalize(&mut self, pcpu: u32, target: TaskId, ns: u64) {
        let Some(curr) = self.rq(pcpu).curr else { return };
        let (entity, to) = (self.threads[curr].entity, &self.threads[target]);
        let at = match to.pcpu == pcpu {
            true => self.hierarchy.siblings(entity, to.entity).0,
            false => entity,
        };
        self.hierarchy.account(self.hierarchy.entities[at].queue);
        let at = &mut self.hierarchy.entities[at];
        at.vruntime = at.vruntime.wrapping_add(scaled(ns, at.weight));
    }

    /// Returns whether the running thread of `pcpu` and `target` each have their pCPU alone, so that no thread waits.
    pub(crate) fn both_alone(&self, pcpu: u32, target: TaskId) -> bool {
        self.nr_running(pcpu) == 1 && self.nr_running(self.threads[target].pcpu) == 1
    }

    /// Makes the running thread of `pcpu` give way, as the scheduler's rule demands.
    pub(crate) fn yield_current(&mut self, pcpu: u32) {
        let Some(curr) = self.rq(pcpu).curr else { return };
        let (entity, alone) = (self.threads[curr].entity, self.runs_alone(pcpu));
        let policy = self.hierarchy.policy;
        policy.give_way(&mut self.hierarchy, entity, alone);
    }
}
