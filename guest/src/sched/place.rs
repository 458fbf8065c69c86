//! Choosing a CPU for a task (`select_task_rq_fair`).

use holdfast_locks::{CpuId, Paravirt};

use super::scheduler::{OnCpu, WakeHint};
use crate::average;
use crate::config::Placement;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::policy::Placed;
use crate::task::Task;

/// How much more load, in percent of the other's, this CPU must have before a new task goes to the other CPU:
/// 100 + (125 - 100) / 2 of the domain's `imbalance_pct`.
const IMBALANCE: u64 = 112;
/// The same within a cache, with its `imbalance_pct` of 117.
const CACHE_IMBALANCE: u64 = 108;

/// Returns the CPU for the waking task `id`: the waker's or the task's last one, or an idle CPU near that.
pub(super) fn wake_cpu<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, hint: WakeHint) -> CpuId {
    let task = on.task(id);
    let previous = task.cpu.get();
    let wide = on.system.config.wake_wide && is_wide(on, id, task);
    // Comparing costs looks at other CPUs: only where the answer matters.
    let is_near = || match on.system.config.placement {
        Placement::Counts | Placement::ReadyAverages => is_as_little_loaded(on, task, previous, hint),
        Placement::Averages => is_affine(on, task, previous, hint),
    };
    let target = if previous == on.id || !wide && is_near() {
        on.id
    } else {
        previous
    };
    let target = idle_neighbor(on, target, previous);
    on.placed(Placed::Woken { task: id, previous }, target)
}

/// After this time, half of a task's changes of wakees are forgotten.
const FLIPS_DECAY_NS: u64 = 1_000_000_000;

/// Returns `true` if the waker and `task` wake so many others that pulling all of them here would pile them up
/// (`record_wakee`, `wake_wide`).
fn is_wide<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, task: &Task<M>) -> bool {
    let waker = on.current_task();
    let now = on.now();
    if now > waker.wakee_flips_since.get() + FLIPS_DECAY_NS {
        waker.wakee_flips.set(waker.wakee_flips.get() >> 1);
        waker.wakee_flips_since.set(now);
    }
    if waker.last_wakee.get() != id {
        waker.last_wakee.set(id);
        waker.wakee_flips.add(1);
    }
    let factor = if on.system.config.shared_cache {
        on.system.cpu_count()
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

/// Returns `true` if the waker's CPU, with the task, has hardly more load than the task's last one without it
/// (`wake_affine` until 4.13). All tasks have the same weight.
fn is_as_little_loaded<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>, previous: CpuId, hint: WakeHint) -> bool {
    let count = |cpu| on.system.load_of(cpu);
    let counts = on.system.config.placement == Placement::Counts;
    let now = on.now();
    let load = |cpu: CpuId| {
        if counts {
            u64::from(count(cpu)) * average::TASK
        } else {
            on.system.cpus[cpu].average.at(now, count(cpu))
        }
    };
    let (moved, leaves) = if counts {
        (average::TASK, average::TASK)
    } else {
        (task.average.last(), on.current_task().average.at(now, 1))
    };
    let here = load(on.id).saturating_sub(if hint == WakeHint::Sync { leaves } else { 0 });
    here == 0 || !exceeds(here + moved, load(previous))
}

/// Returns `true` if the waker's CPU is as good as the task's last one (`wake_affine_idle`, `wake_affine_weight`).
fn is_affine<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>, previous: CpuId, hint: WakeHint) -> bool {
    let sync = hint == WakeHint::Sync;
    // An interrupt of an idle CPU wakes the task.
    if is_idle(on, on.id) && on.system.share_cache(on.id, previous) {
        return !is_idle(on, previous);
    }
    if sync && on.system.load_of(on.id) == 1 {
        return true;
    }
    if is_idle(on, previous) {
        return false;
    }
    let now = on.now();
    let average = |cpu: CpuId| on.system.cpus[cpu].average.at(now, on.system.load_of(cpu));
    let mut here = average(on.id);
    if sync {
        let leaves = on.current_task().average.at(now, 1);
        if leaves > here {
            return true;
        }
        here -= leaves;
    }
    let moved = task.average.last();
    let there = average(previous).saturating_sub(moved);
    100 * (here + moved) < CACHE_IMBALANCE * there + u64::from(sync)
}

/// Returns `true` if `cpu` can run a woken task at once (`idle_cpu`, `available_idle_cpu`).
fn is_idle<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuId) -> bool {
    let system = on.system;
    let is_available =
        || system.config.placement != Placement::Averages || !system.sees_preempted.get() || !on.cpu.is_preempted(cpu);
    system.load_of(cpu) == 0 && system.is_online(cpu) && is_available()
}

/// Returns `true` if load `one` is so much higher than `other` that a task is better placed at the other.
fn exceeds(one: u64, other: u64) -> bool {
    100 * one > IMBALANCE * other
}

/// `select_idle_sibling`: returns `target` if it is idle, else an idle CPU of the same cache, else `target`.
fn idle_neighbor<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, previous: CpuId) -> CpuId {
    if is_idle(on, target) || !on.system.config.shared_cache {
        return target;
    }
    if is_idle(on, previous) {
        return previous;
    }
    for candidate in on.system.others(target) {
        on.work(costs::PLACE_PER_CPU);
        if is_idle(on, candidate) {
            return candidate;
        }
    }
    target
}

/// Returns the least loaded CPU if the load differs enough (`find_idlest_group`, one CPU per group), else this CPU.
pub(super) fn idlest<M: Machine>(on: &OnCpu<'_, M>, placed: Placed) -> CpuId {
    on.work(costs::PLACE_PER_CPU * u64::from(on.system.cpu_count()));
    let load = |cpu| on.system.load_of(cpu);
    let others = on.system.others(on.id).filter(|&cpu| on.system.is_online(cpu));
    let idlest = match others.min_by_key(|&cpu| load(cpu)) {
        Some(best) if exceeds(load(on.id).into(), load(best).into()) => best,
        _ => on.id,
    };
    on.placed(placed, idlest)
}

#[cfg(test)]
mod tests {
    use super::{exceeds, many_to_many};

    #[test]
    fn a_load_counts_as_higher_from_an_eighth_on() {
        assert!(exceeds(1, 0) && exceeds(2, 1) && exceeds(9, 8) && exceeds(226, 201));
        assert!(!exceeds(0, 0) && !exceeds(1, 1) && !exceeds(10, 9) && !exceeds(112, 100) && !exceeds(1, 2));
    }

    #[test]
    fn only_tasks_that_both_wake_many_are_left_where_they_slept() {
        assert!(!many_to_many(0, 1000, 1), "a task that wakes no other may be pulled");
        assert!(many_to_many(1, 1, 1));
        assert!(
            !many_to_many(3, 4, 4) && !many_to_many(4, 15, 4),
            "a cache that several CPUs share holds a few tasks"
        );
        assert!(many_to_many(4, 16, 4) && many_to_many(16, 4, 4));
    }
}
