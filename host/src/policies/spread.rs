//! Spread: a guest whose vCPUs run at the same time and wait for each other runs fewer at once, and more of the time.

use alloc::vec::Vec;

use super::section::{DEBT_MAX_NS, is_in_queue, ready};
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId, VmId};
use crate::sched::seam::{Pause, Policy, RunState, View};

/// A vCPU that takes a pause exit in the queue of a lock leaves its pCPU to a thread of another VM, if without it there
/// still run as many of its siblings as its VM has pCPUs by right. It stays if it had gone to sleep before it ran: a
/// vCPU that sleeps by itself needs less than its share, and soon.
///
/// That number is the sum over the vCPUs of the VM of one by the number of threads that want the pCPU of each, as if
/// all had the same weight. The vCPU stays ready and loses nothing: what it has not run, it gets later. So the VM has
/// its share as before, and its vCPUs no longer run all at once, to contend, and then none. While the vCPU is more than
/// 3 ms behind its turn, or the other thread as much ahead of its own, the vCPU stays. One that stays spins on.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    pcpus: Vec<Pcpu>,
    /// For each thread whether it was preempted when it last left a pCPU.
    preempted: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pcpu {
    /// The thread that was picked last.
    last: Option<TaskId>,
    /// The thread that is to leave.
    leaves: Option<TaskId>,
}

impl Spread {
    fn at(&mut self, pcpu: PcpuId) -> &mut Pcpu {
        let index = pcpu.0 as usize;
        self.pcpus.resize(self.pcpus.len().max(index + 1), Pcpu::default());
        &mut self.pcpus[index]
    }
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

    fn reports_yields(&self) -> bool {
        true
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let Pcpu { last, leaves } = core::mem::take(self.at(pcpu));
        if let Some(last) = last {
            let index = last.0 as usize;
            self.preempted.resize(self.preempted.len().max(index + 1), false);
            self.preempted[index] = view.thread(last).is_some_and(|thread| thread.run == RunState::Ready);
        }
        let stays = leaves.filter(|&task| kernel == Some(task));
        stays.and_then(|task| other(view, pcpu, task)).or(kernel)
    }

    fn slice(&mut self, _: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.at(pcpu).last = Some(task);
        None
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let running = view
            .thread_of(spinner)
            .and_then(|task| Some((task, view.thread(task)?)));
        let Some((task, thread)) = running.filter(|(_, thread)| is_in_queue(&thread.guest) && thread.lag < DEBT_MAX_NS)
        else {
            return Pause::Resume;
        };
        let preempted = self.preempted.get(task.0 as usize).copied().unwrap_or(false);
        if !preempted || other(view, thread.pcpu, task).is_none() || !is_crowded(view, task) {
            return Pause::Resume;
        }
        self.at(thread.pcpu).leaves = Some(task);
        Pause::Leave
    }
}
