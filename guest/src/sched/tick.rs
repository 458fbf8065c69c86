//! The scheduler's part of the timer interrupt.

use holdfast_locks::CpuId;

use super::balance::takes;
use super::params::{MIN_GRANULARITY, scale, slice};
use super::scheduler::OnCpu;
use crate::costs;
use crate::cpu::idle_task;
use crate::machine::Machine;

/// Accounts the running task, and asks to reschedule if its slice is over (`scheduler_tick`), or if the guest's policy
/// moves it. Interrupts are masked.
pub(crate) fn tick<M: Machine>(on: &OnCpu<'_, M>) {
    account(on);
    if on.system.policy.is_some() {
        push(on);
    }
}

/// Moves the running task where the policy wants it.
fn push<M: Machine>(on: &OnCpu<'_, M>) {
    let running = on.current();
    let task = (running != idle_task(on.id)).then_some(running);
    let target = on.pushed(task).filter(|&to| to != on.id);
    if let (Some(target), Some(id)) = (target, task) {
        let _queue = on.queue().run_queue.lock(on);
        on.task(id).move_to.set(target.0 + 1);
        on.ask_to_reschedule(on.id);
    }
}

fn account<M: Machine>(on: &OnCpu<'_, M>) {
    let mut queue = on.queue().run_queue.lock(on);
    on.work(costs::SCHEDULER_TICK);
    queue.account(on.local, &on.sched.tasks, on.now());
    if queue.is_idle() || queue.load < 2 {
        return;
    }
    let task = on.task(queue.current);
    let ran = task.run_time.get() - task.picked_at.get();
    let first = queue.first_vruntime().unwrap_or(u64::MAX);
    let ahead = task.vruntime.get().saturating_sub(first);
    if is_turn_over(on.system.cpu_count(), queue.load, ran, ahead) {
        let current = queue.current;
        queue.forget(current);
        on.ask_to_reschedule(on.id);
    }
}

/// Returns `true` if one of `tasks` tasks that has run for `ran` nanoseconds must yield. Its virtual run time is
/// `ahead` of the next task's (`check_preempt_tick`).
fn is_turn_over(cpus: u32, tasks: u32, ran: u64, ahead: u64) -> bool {
    let due = slice(cpus, tasks);
    ran > due || ran >= MIN_GRANULARITY * scale(cpus) && ahead > due
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
        let idles = system.load_of(*cpu) == 0 && system.is_online(*cpu);
        idles && on.sched.queues[*cpu].balance_kick.get() == 0 && takes(on, *cpu)
    };
    system.others(on.id).find(helps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_the_slice_or_if_the_task_is_a_slice_ahead() {
        for cpus in [1, 4, 8] {
            let due = slice(cpus, 2);
            let least = MIN_GRANULARITY * scale(cpus);
            assert!(least < due);
            assert!(!is_turn_over(cpus, 2, due, due), "a whole slice belongs to the task");
            assert!(is_turn_over(cpus, 2, due + 1, 0), "the slice is over");
            assert!(is_turn_over(cpus, 2, least, due + 1), "too far ahead");
            assert!(!is_turn_over(cpus, 2, least, due), "not too far ahead");
            assert!(!is_turn_over(cpus, 2, least - 1, due + 1), "no turn is that short");
        }
    }
}
