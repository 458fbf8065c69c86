//! The scheduler's part of the timer interrupt.

use holdfast_locks::CpuId;

use super::params::{MIN_GRANULARITY, scale, slice};
use super::scheduler::OnCpu;
use crate::costs;
use crate::machine::Machine;

/// Accounts the running task, and asks to reschedule if its slice is over (`scheduler_tick`). Interrupts are masked.
pub(crate) fn tick<M: Machine>(on: &OnCpu<'_, M>) {
    let mut queue = on.queue().run_queue.lock(on);
    on.work(costs::SCHEDULER_TICK);
    queue.account(on.local, &on.sched.tasks, on.now());
    if queue.is_idle() || queue.load < 2 {
        return;
    }
    let task = on.task(queue.current);
    let cpus = on.system.cpu_count();
    let (ran, due) = (task.run_time.get() - task.picked_at.get(), slice(cpus, queue.load));
    if ran > due {
        on.ask_to_reschedule(on.id);
    } else if ran >= MIN_GRANULARITY * scale(cpus) {
        let first = queue.first_vruntime().unwrap_or(u64::MAX);
        if task.vruntime.get().saturating_sub(first) > due {
            on.ask_to_reschedule(on.id);
        }
    }
}

/// Nanoseconds between two balancings of an idle CPU (`balance_interval` of a CPU domain in 3.3).
const BALANCE_INTERVAL: u64 = 1_000_000;
/// The interval of a busy CPU is longer by this factor (`busy_factor`).
const BUSY_FACTOR: u64 = 64;

/// Returns `true` if this CPU's balancing is due. If so, sets when it is due next.
pub(crate) fn wants_balance<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let now = on.now();
    let balance_at = &on.queue().balance_at;
    if now < balance_at.get() {
        return false;
    }
    let is_idle = on.system.load_of(on.id) == 0;
    let factor = if is_idle { 1 } else { BUSY_FACTOR };
    balance_at.set(now + factor * BALANCE_INTERVAL);
    true
}

/// Returns an idle CPU to balance on behalf of all idle CPUs, if tasks wait here (`nohz_kick_needed`).
pub(crate) fn idle_helper<M: Machine>(on: &OnCpu<'_, M>) -> Option<CpuId> {
    let system = on.system;
    if system.load_of(on.id) < 2 {
        return None;
    }
    let helps = |cpu: &CpuId| {
        system.load_of(*cpu) == 0 && system.is_online(*cpu) && on.sched.queues[*cpu].balance_kick.get() == 0
    };
    system.others(on.id).find(helps)
}
