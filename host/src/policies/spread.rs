//! Spread: a guest whose vCPUs run at the same time and wait for each other runs fewer at once, and more of the time.

use alloc::vec::Vec;

use super::section::{is_in_queue, ready};
use crate::boundary::{PcpuId, TaskId, VcpuId, VmId};
use crate::sched::seam::{Pause, Policy, RunState, View};

/// A vCPU that takes a pause exit in the queue of a lock leaves its pCPU to a thread of another VM, if without it there
/// still run as many of its siblings as its VM has pCPUs by right.
///
/// That number is the sum over the vCPUs of the VM of one by the number of threads that want the pCPU of each, as if all
/// had the same weight. The vCPU stays ready and loses nothing: what it has not run, it gets later. So the VM has its
/// share as before, and its vCPUs no longer run all at once, to contend, and then none. Nor does the other thread
/// gain: while it is more than 3 ms ahead of its turn, the vCPU stays.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// For each pCPU the thread that is to leave it.
    leaves: Vec<Option<TaskId>>,
}

/// Parts of a pCPU. It has divisors enough.
const WHOLE: u64 = 720_720;

fn vm_of(view: &View<'_>, task: TaskId) -> Option<VmId> {
    view.thread(task)?.vcpu.map(|(vm, _)| vm)
}

/// Returns the thread that gets `pcpu` instead of `task`: of those of other VMs, the one that is farthest behind its
/// turn.
fn other(view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<TaskId> {
    let vm = vm_of(view, task);
    let others = view.ready(pcpu).filter(|&other| vm_of(view, other) != vm);
    let ready = others.filter_map(|other| Some((ready(view, other)?.lag, other)));
    // The order says nothing, so ids decide between equals.
    ready.max_by_key(|&(lag, other)| (lag, other.0)).map(|(_, other)| other)
}

/// Returns whether the siblings of `task`, which runs, have all pCPUs that their VM has by right.
fn is_crowded(view: &View<'_>, task: TaskId) -> bool {
    let vcpus = core::iter::once(task).chain(view.siblings(task));
    let (mut running, mut right) = (0, 0);
    for thread in vcpus.filter_map(|vcpu| view.thread(vcpu)) {
        let wants = matches!(thread.run, RunState::Running | RunState::Ready);
        running += u64::from(thread.run == RunState::Running);
        right += WHOLE / u64::from(view.runnable(thread.pcpu) + u32::from(!wants)).max(1);
    }
    running.saturating_sub(1) * WHOLE >= right
}

impl Policy for Spread {
    fn about(&self) -> &'static str {
        "a vCPU in the queue of a lock leaves its pCPU if its siblings have all that their guest has by right"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let leaves = self.leaves.get_mut(pcpu.0 as usize).and_then(Option::take);
        let stays = leaves.filter(|&task| kernel == Some(task));
        stays.and_then(|task| other(view, pcpu, task)).or(kernel)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let running = view
            .thread_of(spinner)
            .and_then(|task| Some((task, view.thread(task)?)));
        let Some((task, thread)) = running.filter(|(_, thread)| is_in_queue(&thread.guest)) else {
            return Pause::Kernel;
        };
        if other(view, thread.pcpu, task).is_none() || !is_crowded(view, task) {
            return Pause::Kernel;
        }
        let index = thread.pcpu.0 as usize;
        self.leaves.resize(self.leaves.len().max(index + 1), None);
        self.leaves[index] = Some(task);
        Pause::Leave
    }
}
