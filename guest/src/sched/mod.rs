//! The scheduler: fair queueing per CPU after Linux 3.3's CFS, every task at nice 0.
//!
//! **One lock per switch**: the task that is switched away from takes its CPU's run-queue lock; the task that is switched
//! to releases it ([`switch::finish`]). **Not in the kernel**: a task is preempted only where an interrupt finds it in
//! user mode, and when it returns there; a kernel without `CONFIG_PREEMPT`.
//!
//! A kernel on the machine itself leaves all that to the scheduler beneath it, which also schedules vCPUs: `hosted.rs`. Who
//! calls cannot tell.

mod balance;
mod hosted;
mod place;
mod queue;
mod switch;
mod tick;
mod wake;

pub(crate) use balance::{balance_others, idle_balance};
pub(crate) use hosted::sleep as sleep_hosted;
pub(crate) use queue::RunQueue;
pub(crate) use tick::{idle_helper, tick, wants_balance};
pub(crate) use wake::{WakeHint, reschedule_ipi};

use crate::kernel::{CpuIndex, Kernel, OnCpu};
use crate::machine::Machine;
use crate::task::TaskId;

/// Factor of the scheduler's times: 1 + log2 of the CPUs, at most 8 of them (`kernel/sched/fair.c`).
pub(crate) fn scale(cpus: usize) -> u64 {
    1 + u64::from(cpus.clamp(1, 8).ilog2())
}

/// `sysctl_sched_latency`, base: in this time each ready task runs once. Nanoseconds.
pub(crate) const LATENCY: u64 = 6_000_000;
/// `sysctl_sched_min_granularity`, base.
pub(crate) const MIN_GRANULARITY: u64 = 750_000;
/// `sysctl_sched_wakeup_granularity`, base.
pub(crate) const WAKEUP_GRANULARITY: u64 = 1_000_000;
/// `sysctl_sched_migration_cost`: a task that ran less than this ago is cache hot. Not scaled.
pub(crate) const MIGRATION_COST: u64 = 500_000;
/// `sched_nr_latency`: with more tasks the period grows.
pub(crate) const LATENCY_TASKS: u64 = 8;

/// The time that each of `tasks` ready tasks gets before the next one's turn.
pub(crate) fn slice(cpus: usize, tasks: u32) -> u64 {
    let tasks = u64::from(tasks.max(1));
    let period = if tasks > LATENCY_TASKS {
        tasks * MIN_GRANULARITY * scale(cpus)
    } else {
        LATENCY * scale(cpus)
    };
    period / tasks
}

/// Gives the CPU to the task whose turn it is. A caller that said that it sleeps returns when it is woken, maybe on
/// another CPU; any other, when its turn comes again. Interrupts are enabled on return.
pub(crate) fn schedule<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.on_cpu();
    assert_eq!(
        on.local.preempt_count.get(),
        0,
        "task {} sleeps with a spinlock held",
        on.current().0
    );
    match kernel.machine.threads() {
        Some(threads) => hosted::schedule(kernel, threads),
        None => switch::schedule(kernel),
    }
}

/// What task `id` does first when it runs for the first time. Enables interrupts.
pub(crate) fn finish<M: Machine>(kernel: &Kernel<M>, id: TaskId) {
    match kernel.machine.threads() {
        Some(_) => hosted::arrive(kernel, id),
        None => switch::finish(kernel),
    }
}

/// Wakes `id` if it sleeps in a state of `mask`; whether it did.
pub(crate) fn wake<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, mask: u32, hint: WakeHint) -> bool {
    match on.kernel.machine.threads() {
        Some(threads) => hosted::wake(on, threads, id, mask),
        None => wake::wake(on, id, mask, hint),
    }
}

/// The CPU for a new process.
pub(crate) fn fork_cpu<M: Machine>(on: &OnCpu<'_, M>) -> CpuIndex {
    match on.kernel.machine.threads() {
        Some(_) => on.index,
        None => place::fork_cpu(on),
    }
}

/// Makes a new task ready to run, on `target` if this kernel has the choice.
pub(crate) fn start_task<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, id: TaskId) {
    match on.kernel.machine.threads() {
        Some(threads) => hosted::start(on, threads, id),
        None => wake::start_task(on, target, id),
    }
}

/// Moves the caller's task to the least loaded CPU, as exec does: its caches are worth nothing any more.
pub(crate) fn move_for_exec<M: Machine>(kernel: &Kernel<M>) {
    match kernel.machine.threads() {
        Some(threads) => hosted::execute(kernel, threads),
        None => place::move_for_exec(kernel),
    }
}

/// Gives the CPU to others if the scheduler has been asked for: where the kernel allows it in the middle of its work.
/// The caller may be on another CPU afterwards.
#[inline]
pub(crate) fn cond_resched<M: Machine>(kernel: &Kernel<M>) {
    if kernel.on_cpu().wants_to_reschedule() {
        schedule(kernel);
    }
}

/// Asks CPU `target` to call its scheduler. The caller holds its run queue's lock.
pub(crate) fn ask_to_reschedule<M: Machine>(on: &OnCpu<'_, M>, target: u32) {
    let asked = &on.kernel.cpus[target as usize].need_resched;
    if asked.get() != 0 {
        return;
    }
    asked.set(1);
    if target != on.index {
        on.local.count(crate::class::Event::RescheduleIpis);
        crate::apic::send(on, target, crate::apic::RESCHEDULE_VECTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_a_linux_of_that_size() {
        // docs/spec/costs.md, "Host scheduler": two tasks on 8 or more CPUs get 12 ms, three 8 ms, eight or more 3 ms.
        assert_eq!(slice(8, 2), 12_000_000);
        assert_eq!(slice(16, 3), 8_000_000);
        assert_eq!(slice(8, 8), 3_000_000);
        assert_eq!(slice(8, 20), 3_000_000);
        assert_eq!(slice(1, 2), 3_000_000);
        assert_eq!(slice(4, 1), 18_000_000);
    }
}
