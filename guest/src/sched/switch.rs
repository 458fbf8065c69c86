//! Choosing the next task and switching to it.

use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_locks::{CpuId, Platform};

use super::balance::idle_balance;
use super::params::{WAKEUP_GRANULARITY, scale};
use super::queue::RunQueue;
use super::scheduler::{OnCpu, Scheduler};
use super::wake;
use crate::class::Event;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::{Cpu, Machine};
use crate::sync::SpinGuard;
use crate::task::state;

/// [`schedule`](super::schedule) for this kernel's own run queues.
pub(super) fn schedule<M: Machine>(sched: &Scheduler<M>) {
    let on = sched.on_cpu();
    on.cpu.irq_disable();
    let mut queue = on.queue().run_queue.lock(&on);
    on.work(costs::PICK);
    let now = on.now();
    let previous = queue.current;
    put_previous(&on, &mut queue, previous, now);
    if queue.none_ready() {
        queue = idle_balance(&on, queue);
    }
    let ahead = WAKEUP_GRANULARITY * scale(on.system.cpu_count());
    let next = queue.take_next(ahead).unwrap_or(queue.idle);
    on.local.need_resched.set(0);
    if next != queue.idle {
        let task = on.task(next);
        task.accounted_at.set(now);
        task.picked_at.set(task.run_time.get());
    }
    if next == previous {
        drop(queue);
        on.cpu.irq_enable();
        return;
    }
    switch(&on, queue, previous, next);
    finish(sched);
}

/// Takes the running task off the CPU: back to the ready tasks, or out of the queue if it sleeps.
fn put_previous<M: Machine>(on: &OnCpu<'_, M>, queue: &mut RunQueue, previous: TaskId, now: u64) {
    if previous == queue.idle {
        return;
    }
    let hints = on.local;
    queue.account(hints, &on.sched.tasks, now);
    let task = on.task(previous);
    let sleeps = task.state.get();
    if sleeps & state::INTERRUPTIBLE != 0 && task.signal_pending.get() != 0 {
        task.state.set(state::RUNNING);
    }
    if task.state.get() != state::RUNNING {
        // It was to be moved by a tick. Its waker chooses a CPU.
        task.move_to.set(0);
    } else if task.move_to.get() == 0 {
        queue.insert(previous, task.vruntime.get());
        on.local.count(Event::Preemptions);
        return;
    }
    queue.dequeued(hints, task, now);
    queue.forget(previous);
    queue.advance(hints, None);
    if queue.load == 0 {
        queue.idle_since = now;
    }
}

fn switch<M: Machine>(on: &OnCpu<'_, M>, mut queue: SpinGuard<'_, RunQueue, M>, previous: TaskId, next: TaskId) {
    let (from, to) = (on.task(previous), on.task(next));
    queue.current = next;
    on.local.current.set(next);
    on.queue().switched_from.set(previous);
    on.local.count(Event::ContextSwitches);
    // ORDERING: Relaxed: the run queue's lock is held. CPUs that wait for 0 need only the Release in `finish`.
    on.cpu.store(&to.on_cpu, 1, Relaxed);
    on.work(costs::SWITCH);
    on.sched.tlbs.switch_to(on, next);
    queue.leave();
    on.system.machine.switch(from.context(), to.context());
}

/// Completes a switch, as the first act of the task that was switched to: releases the run queue, and lets the previous
/// task go. Enables interrupts.
pub(super) fn finish<M: Machine>(sched: &Scheduler<M>) {
    let on = sched.on_cpu();
    let queue = on.queue().run_queue.take_over(&on);
    let previous = on.queue().switched_from.get();
    let task = on.task(previous);
    let (last_state, move_to) = (task.state.get(), task.move_to.get());
    // ORDERING: Release pairs with the Acquire in `wake`: a CPU that sees 0 may use the task's context and stack.
    on.cpu.store(&task.on_cpu, 0, Release);
    drop(queue);
    on.cpu.irq_enable();
    on.work(costs::SWITCH_AFTER);
    if last_state == state::DEAD {
        on.detach_load(on.id, task);
        sched.hooks().left_dead(&on, previous);
    } else if move_to != 0 {
        task.move_to.set(0);
        wake::put_on(&on, previous, CpuId(move_to - 1));
    }
}
