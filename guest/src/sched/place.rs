//! Choosing a CPU for a task (`select_task_rq_fair`).

use crate::costs;
use crate::kernel::{CpuIndex, Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::{WakeHint, schedule};
use crate::task::{Task, TaskId};

/// Load that a CPU must be worse by, in percent, before a new task goes elsewhere: 100 + (125 - 100) / 2 of the domain's
/// `imbalance_pct`.
const IMBALANCE: u32 = 112;

fn load<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuIndex) -> u32 {
    on.kernel.cpus[cpu as usize].load.get()
}

/// The CPU for task `id` that wakes up: the waker's or its own last one, or an idle one beside that.
pub(super) fn wake_cpu<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, hint: WakeHint) -> CpuIndex {
    let task = on.kernel.tasks.get(id);
    let previous = task.cpu.get();
    let wide = on.kernel.config.wake_wide && is_wide(on, id, task);
    let target = if previous == on.index || !wide && is_affine(on, previous, hint) {
        on.index
    } else {
        previous
    };
    idle_neighbour(on, target, previous)
}

/// After so long, half of a task's changes of wakees are forgotten.
const FLIPS_DECAY_NS: u64 = 1_000_000_000;

/// Whether the waker and `task` wake so many others that pulling all of them here would pile them up (`record_wakee`,
/// `wake_wide`).
fn is_wide<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, task: &Task<M>) -> bool {
    let waker = on.kernel.tasks.get(on.current());
    let now = on.now();
    if now > waker.wakee_flips_since.get() + FLIPS_DECAY_NS {
        waker.wakee_flips.set(waker.wakee_flips.get() >> 1);
        waker.wakee_flips_since.set(now);
    }
    if waker.last_wakee.get() != id.0 {
        waker.last_wakee.set(id.0);
        waker.wakee_flips.add(1);
    }
    let factor = if on.kernel.config.shared_cache {
        on.kernel.cpus.len() as u32
    } else {
        1
    };
    many_to_many(waker.wakee_flips.get(), task.wakee_flips.get(), factor)
}

/// `wake_wide` of two counts of changes, on a cache that `factor` CPUs share.
fn many_to_many(one: u32, other: u32, factor: u32) -> bool {
    let (fewer, more) = (one.min(other), one.max(other));
    fewer >= factor && more / factor >= fewer
}

/// Whether the waker's CPU is as good as the task's last one (`wake_affine`), all tasks weighing the same.
fn is_affine<M: Machine>(on: &OnCpu<'_, M>, previous: CpuIndex, hint: WakeHint) -> bool {
    let here = load(on, on.index).saturating_sub(u32::from(hint == WakeHint::Sync));
    let there = load(on, previous);
    here == 0 || 100 * (here + 1) <= IMBALANCE * (there + 1)
}

/// `select_idle_sibling`: `target` if it is idle, else an idle CPU of the same cache, else `target`.
fn idle_neighbour<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, previous: CpuIndex) -> CpuIndex {
    if load(on, target) == 0 {
        return target;
    }
    if !on.kernel.config.shared_cache {
        return target;
    }
    if load(on, previous) == 0 {
        return previous;
    }
    let cpus = on.kernel.cpus.len() as u32;
    for step in 1..cpus {
        let candidate = (target + step) % cpus;
        on.work(costs::PLACE_PER_CPU);
        if load(on, candidate) == 0 && is_online(on, candidate) {
            return candidate;
        }
    }
    target
}

fn is_online<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuIndex) -> bool {
    on.kernel.cpus[cpu as usize].online.get() != 0
}

/// The least loaded CPU, if it is so by enough (`find_idlest_group`, one CPU per group); else this one.
fn idlest<M: Machine>(on: &OnCpu<'_, M>) -> CpuIndex {
    let cpus = on.kernel.cpus.len() as u32;
    on.work(costs::PLACE_PER_CPU * u64::from(cpus));
    let others = (1..cpus)
        .map(|step| (on.index + step) % cpus)
        .filter(|&cpu| is_online(on, cpu));
    match others.min_by_key(|&cpu| load(on, cpu)) {
        Some(best) if 100 * load(on, on.index) > IMBALANCE * load(on, best) => best,
        _ => on.index,
    }
}

/// The CPU for a new process.
pub(super) fn fork_cpu<M: Machine>(on: &OnCpu<'_, M>) -> CpuIndex {
    idlest(on)
}

/// Moves the caller's task to the least loaded CPU, as exec does: its caches are worth nothing any more.
pub(super) fn move_for_exec<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.on_cpu();
    let target = idlest(&on);
    if target == on.index {
        return;
    }
    // Linux asks the CPU's stopper thread, which costs one more switch there.
    on.work(costs::PICK + costs::SWITCH);
    kernel.tasks.get(on.current()).move_to.set(target + 1);
    schedule(kernel);
}

#[cfg(test)]
mod tests {
    use super::many_to_many;

    #[test]
    fn only_tasks_that_both_wake_many_are_left_where_they_slept() {
        assert!(!many_to_many(0, 1000, 1), "one that wakes nobody may come");
        assert!(many_to_many(1, 1, 1));
        assert!(
            !many_to_many(3, 4, 4) && !many_to_many(4, 15, 4),
            "a cache that several share holds a few of them"
        );
        assert!(many_to_many(4, 16, 4) && many_to_many(16, 4, 4));
    }
}
