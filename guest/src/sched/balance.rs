//! Load balancing: pulling ready tasks from busier CPUs.
//!
//! **Two locks in order**: both run queues are locked at once, the lower CPU's first.

use crate::class::Event;
use crate::costs;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::Machine;
use crate::sched::{MIGRATION_COST, RunQueue, ask_to_reschedule};
use crate::sync::SpinGuard;
use crate::task::TaskId;

/// Passes that find only cache-hot tasks before one is moved all the same (`cache_nice_tries` of a CPU domain).
const HOT_TRIES: u32 = 1;

/// Pulls a task before the CPU goes idle (`idle_balance`), unless it is never idle for long. `queue` is this CPU's, locked,
/// and returned so.
pub(crate) fn idle_balance<'a, M: Machine>(
    on: &'a OnCpu<'a, M>,
    queue: SpinGuard<'a, RunQueue, M>,
) -> SpinGuard<'a, RunQueue, M> {
    if queue.average_idle < MIGRATION_COST {
        return queue;
    }
    drop(queue);
    let Some(busiest) = busiest(on, 1) else {
        return on.local.run_queue.lock(on);
    };
    let (mut mine, mut theirs) = lock_both(on, on.index, busiest);
    if mine.nobody_ready() && pull(on, &mut mine, busiest, &mut theirs, 1) > 0 {
        mine.idle_since = 0;
    }
    drop(theirs);
    mine
}

/// Balances this CPU with the busiest (`rebalance_domains`); called from the timer, interrupts enabled.
pub(crate) fn balance_others<M: Machine>(on: &OnCpu<'_, M>) {
    let here = on.local.load.get();
    let Some(busiest) = busiest(on, here) else { return };
    let there = on.kernel.cpus[busiest as usize].load.get();
    let count = (there - here).div_ceil(2).max(1);
    let masked = holdfast_locks::Interrupts::irq_save(&on.cpu);
    {
        let (mut mine, mut theirs) = lock_both(on, on.index, busiest);
        let moved = pull(on, &mut mine, busiest, &mut theirs, count);
        drop(theirs);
        if moved > 0 && mine.is_idle() {
            ask_to_reschedule(on, on.index);
        }
    }
    holdfast_locks::Interrupts::irq_restore(&on.cpu, masked);
}

/// The CPU with most tasks, if at least two and more than one above `here`.
fn busiest<M: Machine>(on: &OnCpu<'_, M>, here: u32) -> Option<CpuIndex> {
    let cpus = on.kernel.cpus.len() as u32;
    on.work(costs::BALANCE_PER_CPU * u64::from(cpus));
    let load = |cpu: CpuIndex| on.kernel.cpus[cpu as usize].load.get();
    let best = (1..cpus)
        .map(|step| (on.index + step) % cpus)
        .rev()
        .max_by_key(|&cpu| load(cpu))?;
    (load(best) >= 2 && load(best) > here).then_some(best)
}

fn lock_both<'a, M: Machine>(
    on: &'a OnCpu<'a, M>,
    mine: CpuIndex,
    other: CpuIndex,
) -> (SpinGuard<'a, RunQueue, M>, SpinGuard<'a, RunQueue, M>) {
    let queue = |cpu: CpuIndex| &on.kernel.cpus[cpu as usize].run_queue;
    if mine < other {
        let first = queue(mine).lock(on);
        (first, queue(other).lock(on))
    } else {
        let first = queue(other).lock(on);
        (queue(mine).lock(on), first)
    }
}

/// Moves up to `count` ready tasks from `busiest` to this CPU; how many.
fn pull<M: Machine>(
    on: &OnCpu<'_, M>,
    mine: &mut RunQueue,
    busiest: CpuIndex,
    theirs: &mut RunQueue,
    count: u32,
) -> u32 {
    let (kernel, now) = (on.kernel, on.now());
    let force = mine.balance_failures > HOT_TRIES;
    let is_cold = |id: TaskId| force || now.saturating_sub(kernel.tasks.get(id).accounted_at.get()) >= MIGRATION_COST;
    let mut moved = 0;
    while moved < count && theirs.load >= 2 && theirs.load > mine.load {
        let Some(id) = theirs.take_for_move(is_cold) else { break };
        let task = kernel.tasks.get(id);
        theirs.dequeued(&kernel.cpus[busiest as usize], task);
        let ahead = task.vruntime.get().wrapping_sub(theirs.min_vruntime);
        let vruntime = mine.min_vruntime.wrapping_add(ahead);
        task.vruntime.set(if vruntime > i64::MAX as u64 { 0 } else { vruntime });
        mine.enqueue(on, on.index, id, task);
        on.work(costs::BALANCE_MOVE);
        on.local.count(Event::Migrations);
        moved += 1;
    }
    mine.balance_failures = if moved > 0 { 0 } else { mine.balance_failures + 1 };
    moved
}
