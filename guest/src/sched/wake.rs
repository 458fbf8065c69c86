//! Waking tasks (`try_to_wake_up`).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use holdfast_locks::{CpuId, Platform};

use super::params::{LATENCY, LATENCY_TASKS, MIGRATION_COST, WAKEUP_GRANULARITY, scale, slice};
use super::place;
use super::queue::RunQueue;
use super::scheduler::{OnCpu, WakeHint};
use crate::average;
use crate::class::Event;
use crate::config::Placement;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::task::{Task, state};

/// [`wake`](super::wake) for this kernel's own run queues.
pub(super) fn wake<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, mask: u32, hint: WakeHint) -> bool {
    let task = on.task(id);
    let config = &on.system.config;
    let _serialized = task.wake_lock.lock_irq(on);
    if task.state.get() & mask == 0 {
        return false;
    }
    if config.ttwu_queue {
        on.work(costs::WAKE);
    } else {
        // Before 3.0 the lock of the task's last run queue serializes its wakeups, and covers the choice of a CPU.
        on.sched.queues[task.cpu.get()].run_queue.hold(on, costs::WAKE);
    }
    on.local.count(Event::Wakeups);
    if task.queued.get() != 0 && wake_before_sleep(on, id) {
        return true;
    }
    // ORDERING: Relaxed: the task's own CPU takes it from the wake list, and has switched by then.
    if config.placement == Placement::Averages
        && on.cpu.load(&task.on_cpu, Relaxed) != 0
        && is_handed_over(on, task.cpu.get())
    {
        task.state.set(state::WAKING);
        hand_over(on, task.cpu.get(), id, task);
        return true;
    }
    // The task may still be switching away on another CPU, which uses its stack until then.
    // ORDERING: the wait's Acquire pairs with the Release in `switch::finish`.
    on.wait_for(&task.on_cpu, |running| running == 0);
    task.state.set(state::WAKING);
    let target = place::wake_cpu(on, id, hint);
    if task.cpu.get() != target {
        leave_last_cpu(on, task);
        on.local.count(Event::Migrations);
    }
    task.cpu.set(target);
    if is_handed_over(on, target) {
        hand_over(on, target, id, task);
    } else {
        activate(on, target, id);
    }
    true
}

/// Returns `true` if CPU `target` itself puts tasks that are woken here on its run queue (`ttwu_queue_cond`).
fn is_handed_over<M: Machine>(on: &OnCpu<'_, M>, target: CpuId) -> bool {
    let config = &on.system.config;
    let waits_there = config.placement == Placement::Averages && target != on.id && on.system.load_of(target) == 0;
    config.ttwu_queue && (waits_there || !on.system.share_cache(on.id, target))
}

/// Makes the task's virtual run time relative to the smallest of the CPU that it leaves (`migrate_task_rq_fair`).
fn leave_last_cpu<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) {
    let from = &on.system.cpus[task.cpu.get()];
    task.leave(from.min_vruntime.get());
    task.migrates.set(1);
    if on.system.config.placement == Placement::Averages {
        task.average.account(on.now(), 0);
    }
    on.detach_load(task.cpu.get(), task);
}

/// Wakes a task that has set its state to asleep but has not called the scheduler yet: resets the state.
fn wake_before_sleep<M: Machine>(on: &OnCpu<'_, M>, id: TaskId) -> bool {
    let task = on.task(id);
    let cpu = task.cpu.get();
    let mut queue = on.sched.queues[cpu].run_queue.lock(on);
    if task.queued.get() == 0 {
        return false;
    }
    task.state.set(state::RUNNING);
    check_preemption(on, cpu, &mut queue, id);
    true
}

/// Puts a woken task on `target`'s run queue.
fn activate<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, id: TaskId) {
    let mut queue = on.sched.queues[target].run_queue.lock(on);
    activate_locked(on, target, &mut queue, id);
}

fn activate_locked<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, queue: &mut RunQueue, id: TaskId) {
    let task = on.task(id);
    let hints = &on.system.cpus[target];
    on.work(costs::ENQUEUE);
    let now = on.now();
    end_idle(queue, now);
    let before = queue.min_vruntime;
    queue.account(hints, &on.sched.tasks, now);
    if task.migrates.get() != 0 {
        task.migrates.set(0);
        let base = if on.system.config.migrated_credit {
            before
        } else {
            queue.min_vruntime
        };
        task.join(base);
        queue.attach(hints, task, now);
    }
    // A sleeper gets credit for at most half a latency (`GENTLE_FAIR_SLEEPERS`).
    let credit = LATENCY * scale(on.system.cpu_count()) / 2;
    let least = queue.min_vruntime.saturating_sub(credit);
    task.vruntime.set(task.vruntime.get().max(least));
    queue.enqueue(hints, target, id, task, now);
    task.state.set(state::RUNNING);
    check_preemption(on, target, queue, id);
}

/// Pushes a task on `target`'s wake list (`ttwu_queue_remote`). `target` itself puts it on its run queue.
fn hand_over<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, id: TaskId, task: &Task<M>) {
    let list = &on.sched.queues[target].wake_list;
    let mut head = on.cpu.load(list, Relaxed);
    loop {
        task.wake_next.set(head);
        // ORDERING: the Release part pairs with the Acquire of the swap in `reschedule_ipi`, which so sees the link.
        match on.cpu.compare_exchange(list, head, id.0 + 1, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(found) => head = found,
        }
    }
    if head == 0 {
        on.send_reschedule(target);
    }
}

/// Handles the reschedule IPI: activates the tasks that other CPUs have woken for this one.
pub(crate) fn reschedule_ipi<M: Machine>(on: &OnCpu<'_, M>) {
    let list = &on.queue().wake_list;
    // ORDERING: Relaxed: only a check for an empty list. The swap below acquires.
    if on.cpu.load(list, Relaxed) == 0 {
        return;
    }
    // ORDERING: Acquire pairs with the Release in `hand_over`.
    let mut link = on.cpu.swap(list, 0, Acquire);
    let mut queue = on.queue().run_queue.lock_irq(on);
    while link != 0 {
        let id = TaskId(link - 1);
        link = on.task(id).wake_next.get();
        activate_locked(on, on.id, &mut queue, id);
    }
}

/// Whether another CPU has left this CPU something to do for which it would send the reschedule IPI.
pub(crate) fn has_ipi_work<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    // ORDERING: SeqCst: after this CPU began to watch its word, see `send_reschedule`.
    on.cpu.load(&on.queue().wake_list, SeqCst) != 0 || on.queue().balance_kick.get() != 0
}

/// Preempts the task that runs on `cpu` if `woken` has a smaller virtual run time by enough (`check_preempt_wakeup`).
fn check_preemption<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuId, queue: &mut RunQueue, id: TaskId) {
    if queue.is_idle() {
        on.ask_to_reschedule(cpu);
        return;
    }
    let (running, woken) = (on.task(queue.current), on.task(id));
    if !preempts(on.system.cpu_count(), running.vruntime.get(), woken.vruntime.get()) {
        return;
    }
    if on.system.cpus[cpu].need_resched.get() == 0 {
        let is_crowded = u64::from(queue.load) >= LATENCY_TASKS;
        let preempted = (is_crowded && running.queued.get() != 0).then_some(queue.current);
        queue.prefer(id, preempted);
    }
    on.ask_to_reschedule(cpu);
}

/// Returns `true` if a woken task preempts the running one, by the virtual run times of both.
fn preempts(cpus: u32, running: u64, woken: u64) -> bool {
    running.saturating_sub(woken) > WAKEUP_GRANULARITY * scale(cpus)
}

/// Makes a new task ready to run on `target` (`wake_up_new_task`). It starts one slice behind, so that a task cannot
/// gain CPU time by forking.
pub(super) fn start_task<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, id: TaskId) {
    let task = on.task(id);
    let _serialized = task.wake_lock.lock_irq(on);
    let hints = &on.system.cpus[target];
    let mut queue = on.sched.queues[target].run_queue.lock(on);
    on.work(costs::ENQUEUE);
    let now = on.now();
    end_idle(&mut queue, now);
    queue.account(hints, &on.sched.tasks, now);
    task.vruntime
        .set(queue.min_vruntime + slice(on.system.cpu_count(), queue.load + 1));
    task.state.set(state::RUNNING);
    task.average.begin(now, average::TASK);
    queue.attach(hints, task, now);
    queue.enqueue(hints, target, id, task, now);
    check_preemption(on, target, &mut queue, id);
}

/// Puts a task that was taken off its CPU without sleeping on `target`.
pub(super) fn put_on<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, target: CpuId) {
    let task = on.task(id);
    let _serialized = task.wake_lock.lock_irq(on);
    leave_last_cpu(on, task);
    task.cpu.set(target);
    on.local.count(Event::Migrations);
    activate(on, target, id);
}

/// Ends the CPU's idleness at a wakeup, and updates the average that `idle_balance` uses (`ttwu_do_wakeup`).
fn end_idle(queue: &mut RunQueue, now: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_woken_task_preempts_one_that_is_more_than_the_granularity_ahead() {
        // `wakeup_gran` of a Linux of 1, 2 and 8 CPUs: 1 ms, 2 ms and 4 ms.
        for (cpus, granularity) in [(1, 1_000_000), (2, 2_000_000), (8, 4_000_000)] {
            assert!(preempts(cpus, granularity + 8, 7));
            assert!(!preempts(cpus, granularity + 7, 7), "{cpus} CPUs");
            assert!(!preempts(cpus, 7, granularity + 8), "the running task is behind");
        }
    }
}
