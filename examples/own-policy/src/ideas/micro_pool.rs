//! Micro-sliced cores (Ahn, Park and Huh, "Accelerating critical OS services in virtualized systems with flexible
//! micro-sliced cores", EuroSys 2018): a vCPU that others wait for runs at once for 100 us on a pCPU set aside.
//!
//! The pCPU is the last one. Only vCPUs that a pause exit has found, preempted in kernel code, are urgent. The pCPU
//! takes other threads while there are none, in slices as short. The paper sizes the pool by the number of urgent
//! vCPUs, and looks up where in the kernel each was preempted.

use holdfast_host::{Nanos, Pause, PcpuId, Policy, RunState, TaskId, VcpuId, View};

use super::was_in_kernel;

/// The slice on the pCPU of urgent vCPUs.
const SLICE: Nanos = Nanos(100_000);

/// How far a thread may be ahead of its turn until it is urgent no more. Nanoseconds. Without this bound a guest that
/// pauses and masks interrupts for nothing would take from the others' shares.
const AHEAD_MAX_NS: i64 = 3_000_000;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct MicroPool {
    /// Threads to be run at once, the oldest first.
    urgent: Vec<TaskId>,
    /// Threads that were run there, and the pCPUs to which they return.
    lent: Vec<(TaskId, PcpuId)>,
}

fn is_pool(view: &View<'_>, pcpu: PcpuId) -> bool {
    pcpu.0 > 0 && view.pcpus().last() == Some(pcpu)
}

impl Policy for MicroPool {
    fn about(&self) -> &'static str {
        "vCPUs that others wait for run for 100 us on the last pCPU (2018)"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let ready = |task: TaskId| view.thread(task).filter(|at| at.run == RunState::Ready);
        if !is_pool(view, pcpu) {
            let returns = |&(task, home): &(TaskId, PcpuId)| home == pcpu && ready(task).is_some();
            let found = self.lent.iter().position(returns);
            return found.map(|index| self.lent.remove(index).0).or(kernel);
        }
        // One that has slept since is where the kernel has put it.
        let stays = |task: TaskId| {
            view.thread(task)
                .is_some_and(|at| at.pcpu == pcpu && at.run != RunState::Asleep)
        };
        self.lent.retain(|&(task, _)| stays(task));
        self.urgent
            .retain(|&task| ready(task).is_some() && view.may_run_on(task, pcpu));
        if self.urgent.is_empty() {
            return kernel;
        }
        let task = self.urgent.remove(0);
        let home = view.thread(task).map(|at| at.pcpu).filter(|&home| home != pcpu);
        self.lent.extend(home.map(|home| (task, home)));
        Some(task)
    }

    fn slice(&mut self, view: &View<'_>, pcpu: PcpuId, _: TaskId) -> Option<Nanos> {
        is_pool(view, pcpu).then_some(SLICE)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let Some(waiter) = view.thread_of(spinner) else {
            return Pause::Kernel;
        };
        let has_turn = |task| view.thread(task).is_some_and(|thread| thread.lag > -AHEAD_MAX_NS);
        for task in view.siblings(waiter).filter(|&task| was_in_kernel(view, task)) {
            if has_turn(task) && !self.urgent.contains(&task) {
                self.urgent.push(task);
            }
        }
        Pause::Kernel
    }
}
