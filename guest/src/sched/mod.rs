//! The scheduler: fair queueing per CPU like Linux 3.3's CFS, with every task at nice 0.
//!
//! **One lock per switch**: the task that is switched away from takes its CPU's run-queue lock. The task that is
//! switched to releases it (`switch::finish`). **No kernel preemption**: a task is preempted only where an interrupt
//! finds it in user mode, and when it returns there, as in a kernel without `CONFIG_PREEMPT`.
//!
//! A kernel on the machine itself (`hosted.rs`) leaves all this to the scheduler below it, which also schedules vCPUs.
//! The functions of this file hide the difference from their callers.

mod balance;
mod hosted;
mod params;
mod place;
mod queue;
mod scheduler;
mod switch;
mod tick;
mod wake;

pub(crate) use balance::balance_others;
pub(crate) use hosted::sleep as sleep_hosted;
pub(crate) use scheduler::{OnCpu, Scheduler, TaskHooks, WakeHint};
pub(crate) use tick::{idle_helper, tick, wants_balance};
pub(crate) use wake::{has_ipi_work, reschedule_ipi};

use holdfast_locks::CpuId;

use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::policy::Placed;

/// Gives the CPU to the task whose turn it is. A caller that has set its state to asleep returns when it is woken,
/// maybe on another CPU. Any other caller returns when its turn comes again. Interrupts are enabled on return.
pub(crate) fn schedule<M: Machine>(sched: &Scheduler<M>) {
    let on = sched.on_cpu();
    assert_eq!(
        on.local.preempt_count.get(),
        0,
        "task {} sleeps with a spinlock held",
        on.current().0
    );
    match sched.system.machine.threads() {
        Some(threads) => hosted::schedule(sched, threads),
        None => switch::schedule(sched),
    }
}

/// Completes the first switch to task `id`, as its first act. Enables interrupts.
pub(crate) fn finish<M: Machine>(sched: &Scheduler<M>, id: TaskId) {
    match sched.system.machine.threads() {
        Some(_) => hosted::arrive(sched, id),
        None => switch::finish(sched),
    }
}

/// Wakes `id` if it sleeps in a state of `mask`. Returns `true` if it did.
pub(crate) fn wake<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, mask: u32, hint: WakeHint) -> bool {
    match on.system.machine.threads() {
        Some(threads) => hosted::wake(on, threads, id, mask),
        None => wake::wake(on, id, mask, hint),
    }
}

/// Chooses the CPU for a new process.
pub(crate) fn fork_cpu<M: Machine>(on: &OnCpu<'_, M>) -> CpuId {
    match on.system.machine.threads() {
        Some(_) => on.id,
        None => place::idlest(on, Placed::New),
    }
}

/// Makes a new task ready to run, on `target` if this kernel has its own run queues.
pub(crate) fn start_task<M: Machine>(on: &OnCpu<'_, M>, target: CpuId, id: TaskId) {
    match on.system.machine.threads() {
        Some(threads) => hosted::start(on, threads, id),
        None => wake::start_task(on, target, id),
    }
}

/// Moves the caller's task to the least loaded CPU, as exec does: its cache contents are worthless after that.
pub(crate) fn move_for_exec<M: Machine>(sched: &Scheduler<M>) {
    if let Some(threads) = sched.system.machine.threads() {
        return hosted::execute(sched, threads);
    }
    let on = sched.on_cpu();
    let target = place::idlest(&on, Placed::Exec);
    if target == on.id {
        return;
    }
    // Linux asks the CPU's stopper thread, which costs one more switch there.
    on.work(costs::PICK + costs::SWITCH);
    on.current_task().move_to.set(target.0 + 1);
    schedule(sched);
}

/// Calls the scheduler if it wants this CPU, at a place where the kernel allows that in the middle of its work. The
/// caller may be on another CPU afterwards.
#[inline]
pub(crate) fn cond_resched<M: Machine>(sched: &Scheduler<M>) {
    if sched.system.this_cpu().wants_to_reschedule() {
        schedule(sched);
    }
}
