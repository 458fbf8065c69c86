//! Choosing the next task and switching to it.

use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_locks::Platform;

use crate::class::Event;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::{Cpu, Machine};
use crate::sched::{MIGRATION_COST, RunQueue, idle_balance};
use crate::sync::SpinGuard;
use crate::task::{TaskId, state};

/// As [`schedule`](super::schedule), by this kernel's own run queues.
pub(super) fn schedule<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.on_cpu();
    on.cpu.irq_disable();
    let mut queue = on.local.run_queue.lock(&on);
    on.work(costs::PICK);
    let now = on.now();
    let previous = queue.current;
    put_previous(&on, &mut queue, previous, now);
    if queue.nobody_ready() {
        queue = idle_balance(&on, queue);
    }
    let next = queue.take_first().unwrap_or(queue.idle);
    on.local.need_resched.set(0);
    start_accounting(&on, &queue, next, now);
    if next == previous {
        drop(queue);
        on.cpu.irq_enable();
        return;
    }
    switch(&on, queue, previous, next);
    finish(kernel);
}

/// Takes the running task off the CPU: back in line, or out of the queue if it sleeps.
fn put_previous<M: Machine>(on: &OnCpu<'_, M>, queue: &mut RunQueue, previous: TaskId, now: u64) {
    if previous == queue.idle {
        return;
    }
    queue.account(on.kernel, on.local, now);
    let task = on.kernel.tasks.get(previous);
    let sleeps = task.state.get();
    if sleeps & state::INTERRUPTIBLE != 0 && task.signal_pending.get() != 0 {
        task.state.set(state::RUNNING);
    }
    if task.state.get() == state::RUNNING && task.move_to.get() == 0 {
        queue.insert(previous, task.vruntime.get());
        on.local.count(Event::Preemptions);
        return;
    }
    queue.dequeued(on.local, task);
    queue.advance(on.local, None);
    if queue.load == 0 {
        queue.idle_since = now;
    }
}

fn start_accounting<M: Machine>(on: &OnCpu<'_, M>, queue: &RunQueue, next: TaskId, now: u64) {
    if next != queue.idle {
        let task = on.kernel.tasks.get(next);
        task.accounted_at.set(now);
        task.picked_at.set(task.run_time.get());
    }
}

fn switch<M: Machine>(on: &OnCpu<'_, M>, mut queue: SpinGuard<'_, RunQueue, M>, previous: TaskId, next: TaskId) {
    let kernel = on.kernel;
    let (from, to) = (kernel.tasks.get(previous), kernel.tasks.get(next));
    queue.current = next;
    on.local.current.set(next.0);
    on.local.switched_from.set(previous.0);
    on.local.count(Event::ContextSwitches);
    // ORDERING: Relaxed: the run queue's lock is held; who waits for 0 cares for the Release in `finish` only.
    on.cpu.store(&to.on_cpu, 1, Relaxed);
    on.work(costs::SWITCH);
    crate::mm::switch_space(on, next);
    queue.leave();
    kernel.machine.switch(from.context(), to.context());
}

/// What the task that was switched to does first: releases the run queue and lets its predecessor go. Enables interrupts.
pub(super) fn finish<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.on_cpu();
    let queue = on.local.run_queue.take_over(&on);
    let previous = TaskId(on.local.switched_from.get());
    let task = kernel.tasks.get(previous);
    let (last_state, move_to) = (task.state.get(), task.move_to.get());
    // ORDERING: Release pairs with the Acquire in `wake`: whoever sees 0 may use the task's context and stack.
    on.cpu.store(&task.on_cpu, 0, Release);
    drop(queue);
    on.cpu.irq_enable();
    on.work(costs::SWITCH_AFTER);
    if last_state == state::DEAD {
        crate::process::put_task(&on, previous);
    } else if move_to != 0 {
        task.move_to.set(0);
        crate::sched::wake::put_on(&on, previous, move_to - 1);
    }
}

/// A wake-up ends the CPU's idleness: the average that [`idle_balance`] goes by (`ttwu_do_wakeup`).
pub(super) fn end_idle(queue: &mut RunQueue, now: u64) {
    if queue.idle_since == 0 {
        return;
    }
    let (idle, most) = (now.saturating_sub(queue.idle_since), 2 * MIGRATION_COST);
    queue.average_idle = if idle > most {
        most
    } else {
        (queue.average_idle * 7 + idle) / 8
    };
    queue.idle_since = 0;
}
