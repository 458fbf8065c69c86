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

/// Whether this CPU's balancing is due; sets when it is due next. One every `cpus` milliseconds when idle, 32 times as
/// rarely when busy (`sd->balance_interval`, `busy_factor`).
pub(crate) fn wants_balance<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let now = on.now();
    if now < on.local.balance_at.get() {
        return false;
    }
    let interval = 1_000_000 * on.kernel.cpus.len() as u64;
    on.local.balance_at.set(
        now + if on.local.load.get() == 0 {
            interval
        } else {
            32 * interval
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
