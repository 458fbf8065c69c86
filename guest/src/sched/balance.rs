//! Load balancing: pulling ready tasks from busier CPUs.
//!
//! **Two locks in order**: where both run queues are locked at once, the lower CPU's lock is taken first.

use holdfast_locks::{CpuId, Interrupts};

use super::params::MIGRATION_COST;
use super::queue::RunQueue;
use super::scheduler::OnCpu;
use crate::class::Event;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sync::SpinGuard;

/// After more passes than this that found only cache-hot tasks, a cache-hot task is moved (`cache_nice_tries` of a CPU
/// domain).
const HOT_TRIES: u32 = 1;

/// Pulls a task before the CPU goes idle (`idle_balance`), unless the CPU is usually idle only for a short time.
/// `queue` is this CPU's run queue. The result is the guard of the same queue.
pub(crate) fn idle_balance<'a, M: Machine>(
    on: &'a OnCpu<'a, M>,
    queue: SpinGuard<'a, RunQueue, M>,
) -> SpinGuard<'a, RunQueue, M> {
    if queue.idles_briefly() || !takes(on, on.id) {
        return queue;
    }
    drop(queue);
    let Some(busiest) = busiest(on, 1) else {
        return on.queue().run_queue.lock(on);
    };
    let (mut mine, mut theirs) = lock_both(on, on.id, busiest);
    if mine.none_ready() && pull(on, &mut mine, busiest, &mut theirs, 1) > 0 {
        mine.idle_since = 0;
    }
    drop(theirs);
    mine
}

/// Balances this CPU with the busiest one (`rebalance_domains`). Called from the timer softirq with interrupts enabled.
pub(crate) fn balance_others<M: Machine>(on: &OnCpu<'_, M>) {
    if !takes(on, on.id) {
        return;
    }
    let here = on.system.load_of(on.id);
    let Some(busiest) = busiest(on, here) else { return };
    let there = on.system.load_of(busiest);
    let count = (there - here).div_ceil(2).max(1);
    let enabled = on.cpu.irq_save();
    {
        let (mut mine, mut theirs) = lock_both(on, on.id, busiest);
        let moved = pull(on, &mut mine, busiest, &mut theirs, count);
        drop(theirs);
        if moved > 0 && mine.is_idle() {
            on.ask_to_reschedule(on.id);
        }
    }
    on.cpu.irq_restore(enabled);
}

/// Returns whether load balancing may move tasks to `to`.
#[inline]
pub(super) fn takes<M: Machine>(on: &OnCpu<'_, M>, to: CpuId) -> bool {
    on.ask(true, |policy, cpus| policy.takes(cpus, to))
}

/// Returns the CPU with the most tasks if it has at least two, and more than `here`.
fn busiest<M: Machine>(on: &OnCpu<'_, M>, here: u32) -> Option<CpuId> {
    on.work(costs::BALANCE_PER_CPU * u64::from(on.system.cpu_count()));
    let load = |cpu| on.system.load_of(cpu);
    let best = on.system.others(on.id).rev().max_by_key(|&cpu| load(cpu))?;
    (load(best) >= 2 && load(best) > here).then_some(best)
}

fn lock_both<'a, M: Machine>(
    on: &'a OnCpu<'a, M>,
    mine: CpuId,
    other: CpuId,
) -> (SpinGuard<'a, RunQueue, M>, SpinGuard<'a, RunQueue, M>) {
    let queue = |cpu| &on.sched.queues[cpu].run_queue;
    if mine < other {
        let first = queue(mine).lock(on);
        (first, queue(other).lock(on))
    } else {
        let first = queue(other).lock(on);
        (queue(mine).lock(on), first)
    }
}

/// Moves up to `count` ready tasks from `busiest` to this CPU, and returns how many it moved.
fn pull<M: Machine>(on: &OnCpu<'_, M>, mine: &mut RunQueue, busiest: CpuId, theirs: &mut RunQueue, count: u32) -> u32 {
    let now = on.now();
    let force = mine.balance_failures > HOT_TRIES;
    let is_cold = |id: TaskId| force || now.saturating_sub(on.task(id).accounted_at.get()) >= MIGRATION_COST;
    let mut moved = 0;
    while moved < count && theirs.load >= 2 && theirs.load > mine.load {
        let Some(id) = theirs.take_for_move(is_cold) else { break };
        let task = on.task(id);
        theirs.dequeued(&on.system.cpus[busiest], task, now);
        on.detach_load(busiest, task);
        task.leave(theirs.min_vruntime);
        task.join(mine.min_vruntime);
        mine.attach(on.local, task, now);
        mine.enqueue(on.local, on.id, id, task, now);
        on.work(costs::BALANCE_MOVE);
        on.local.count(Event::Migrations);
        moved += 1;
    }
    mine.balance_failures = if moved > 0 { 0 } else { mine.balance_failures + 1 };
    moved
}
