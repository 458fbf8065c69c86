//! Spinning for a sleeping lock while its owner runs, as mutexes and reader-writer semaphores do.
//!
//! Which waiters may spin, and what stops them, has changed over the years: [`OwnerSpinning`]. In a guest the
//! difference is large: the guest's scheduler believes that the owner's task is on a CPU, but that vCPU may be
//! preempted.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Budget, CpuId, Osq, Paravirt, Platform};

use crate::config::OwnerSpinning;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::OnCpu;
use crate::sync::WordOf;

/// Iterations between two checks whether the owner still runs.
const SPIN_BUDGET: Budget = Budget(64);

/// Waits until `word` no longer contains `owner`. Returns `false` if the owner stops running before, or if this CPU
/// must reschedule.
pub(crate) fn outlive<M: Machine>(on: &OnCpu<'_, M>, word: &WordOf<M>, owner: u32) -> bool {
    loop {
        if on
            .cpu
            .wait_until(word, SPIN_BUDGET, Relaxed, |now| now != owner)
            .is_ok()
        {
            return true;
        }
        if !owner_runs(on, owner) || on.wants_to_reschedule() {
            return false;
        }
    }
}

/// Returns `true` if `owner`, a task's id + 1, is on a CPU whose vCPU is not known to be preempted (`owner_on_cpu`).
pub(crate) fn owner_runs<M: Machine>(on: &OnCpu<'_, M>, owner: u32) -> bool {
    let task = on.task(TaskId(owner - 1));
    on.cpu.load(&task.on_cpu, Relaxed) != 0 && !sees_preempted(on, task.cpu.get())
}

/// Waits for the caller's turn in `queue`, and then returns what `spin` returns. Returns `false` if the caller leaves
/// the queue before its turn.
pub(crate) fn in_turn<M: Machine>(queue: &Osq<WordOf<M>>, on: &OnCpu<'_, M>, spin: impl FnOnce() -> bool) -> bool {
    let nodes = &on.sched.spinners;
    let leaves = |before: CpuId| on.wants_to_reschedule() || sees_preempted(on, before);
    if !queue.lock(&on.cpu, nodes, leaves) {
        return false;
    }
    let taken = spin();
    queue.unlock(&on.cpu, nodes);
    taken
}

/// Returns `true` if this kernel checks for preempted vCPUs and the host says that `cpu` is one. A hint: only waiting
/// times depend on it.
fn sees_preempted<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuId) -> bool {
    on.system.config.owner_spinning == OwnerSpinning::PreemptionAware
        && on.system.chosen.get().sees_preempted
        && on.cpu.is_preempted(cpu)
}
