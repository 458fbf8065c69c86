//! Relaxed co-scheduling, as in VMware ESX: siblings need not run at the same time, but none may fall far behind.
//!
//! A vCPU has fallen behind if it has been ready for longer than the skew while a sibling ran. It is preferred on its
//! pCPU, and its siblings give way to other guests until it runs. ESX counts progress, and stops a leading vCPU even
//! if its pCPU has nothing else to do.

use holdfast_host::{Nanos, PcpuId, Policy, RunState, TaskId, View};

/// How long a vCPU may be ready while a sibling runs.
const SKEW: Nanos = Nanos(3_000_000);

/// How long the kernel's choice may wait for the sake of others.
const PATIENCE: Nanos = Nanos(50_000_000);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct CoScheduling;

impl Policy for CoScheduling {
    fn about(&self) -> &'static str {
        "no vCPU falls 3 ms behind its siblings (VMware ESX)"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let kernel = kernel?;
        let waited = |task: &TaskId| view.thread(*task).map_or(Nanos(0), |thread| thread.waited);
        if waited(&kernel) > PATIENCE {
            return Some(kernel);
        }
        let behind = view.ready(pcpu).filter(|&task| is_behind(view, task));
        if let Some(task) = behind.max_by_key(waited) {
            return Some(task);
        }
        if !leads(view, kernel) {
            return Some(kernel);
        }
        let others = view.ready(pcpu).filter(|&task| !leads(view, task));
        others.max_by_key(waited).or(Some(kernel))
    }
}

/// Returns whether `task` has waited for longer than the skew while a sibling runs.
fn is_behind(view: &View<'_>, task: TaskId) -> bool {
    let runs = |sibling| view.thread(sibling).is_some_and(|at| at.run == RunState::Running);
    view.thread(task).is_some_and(|at| at.waited > SKEW) && view.siblings(task).any(runs)
}

/// Returns whether a sibling of `task` has waited for longer than the skew, and `task` has not.
fn leads(view: &View<'_>, task: TaskId) -> bool {
    let waits = |task| view.thread(task).is_some_and(|at| at.waited > SKEW);
    !waits(task) && view.siblings(task).any(waits)
}
