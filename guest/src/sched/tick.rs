//! The scheduler's part of the timer interrupt.

use crate::costs;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::Machine;
use crate::sched::{MIN_GRANULARITY, ask_to_reschedule, scale, slice};

/// Accounts the running task and ends its slice when that is over (`scheduler_tick`). Interrupts are masked.
pub(crate) fn tick<M: Machine>(on: &OnCpu<'_, M>) {
    let mut queue = on.local.run_queue.lock(on);
    on.work(costs::SCHEDULER_TICK);
    queue.account(on.kernel, on.local, on.now());
    if queue.is_idle() || queue.load < 2 {
        return;
    }
    let task = on.kernel.tasks.get(queue.current);
    let cpus = on.kernel.cpus.len();
    let (ran, due) = (task.run_time.get() - task.picked_at.get(), slice(cpus, queue.load));
    if ran > due {
        ask_to_reschedule(on, on.index);
    } else if ran >= MIN_GRANULARITY * scale(cpus) {
        let first = queue.first_vruntime().unwrap_or(u64::MAX);
        if task.vruntime.get().saturating_sub(first) > due {
            ask_to_reschedule(on, on.index);
        }
    }
}

/// Nanoseconds between two balancings of an idle CPU (`balance_interval` of a CPU domain in 3.3).
const BALANCE_INTERVAL: u64 = 1_000_000;
/// A busy CPU balances this many times as rarely (`busy_factor`).
const BUSY_FACTOR: u64 = 64;

/// Whether this CPU's balancing is due; sets when it is due next.
pub(crate) fn wants_balance<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let now = on.now();
    if now < on.local.balance_at.get() {
        return false;
    }
    let is_idle = on.local.load.get() == 0;
    on.local.balance_at.set(
        now + if is_idle {
            BALANCE_INTERVAL
        } else {
            BUSY_FACTOR * BALANCE_INTERVAL
        },
    );
    true
}

/// An idle CPU that should balance in place of all idle ones, because tasks wait here (`nohz_kick_needed`).
pub(crate) fn idle_helper<M: Machine>(on: &OnCpu<'_, M>) -> Option<CpuIndex> {
    if on.local.load.get() < 2 {
        return None;
    }
    let cpus = on.kernel.cpus.len() as u32;
    (1..cpus).map(|step| (on.index + step) % cpus).find(|&cpu| {
        let other = &on.kernel.cpus[cpu as usize];
        other.load.get() == 0 && other.online.get() != 0 && other.balance_kick.get() == 0
    })
}
