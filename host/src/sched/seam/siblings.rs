//! What a host does about the vCPUs of one guest, on top of its policy and its kernel (docs/spec/host.md, "Siblings").
//! Both are off by default.
//!
//! - **Apart**: a thread goes to no pCPU with a sibling while it may run on one without.
//! - **Aligned**: the slices of vCPUs end together, and one guest runs next where the scheduler's shares bear it. So a
//!   guest leaves its pCPUs, and gets them, as a whole.

use super::policy::SLICE_NS;
use super::view::View;
use crate::boundary::{PcpuId, TaskId, VmId};
use crate::config::HostConfig;

/// The switches, and whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Siblings {
    apart: bool,
    /// The slices of vCPUs end at multiples of this. Nanoseconds. `None`: each ends when the kernel says so.
    every_ns: Option<u64>,
    /// The guest whose vCPU was picked first for the slices that end then.
    turn: Option<(u64, VmId)>,
}

impl Siblings {
    pub(super) fn of(config: &HostConfig) -> Siblings {
        Siblings {
            apart: config.siblings_apart,
            every_ns: config.slices_aligned_ns,
            turn: None,
        }
    }

    /// Returns whether neither is on.
    #[inline]
    pub(super) fn are_off(self) -> bool {
        !self.apart && self.every_ns.is_none()
    }

    /// Returns the pCPU for `task` instead of `chosen`: of those without a sibling the one with the fewest threads.
    pub(super) fn place(self, view: &View<'_>, task: TaskId, chosen: PcpuId) -> PcpuId {
        if !self.apart || !view.has_sibling(task, chosen) {
            return chosen;
        }
        let free = |&pcpu: &PcpuId| view.may_run_on(task, pcpu) && !view.has_sibling(task, pcpu);
        let apart = view.pcpus().filter(free);
        apart.min_by_key(|&pcpu| view.runnable(pcpu)).unwrap_or(chosen)
    }

    /// Returns the thread that runs next on `pcpu` instead of `chosen`: a vCPU of the guest whose turn it is, if it is
    /// not ahead of its own turn by more than a slice.
    pub(super) fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, chosen: TaskId) -> TaskId {
        let vm_of = |task| view.thread(task)?.vcpu.map(|(vm, _)| vm);
        let now = view.now().0;
        let (Some(every), Some(end), Some(vm)) = (self.every_ns, self.slice_until(now), vm_of(chosen)) else {
            return chosen;
        };
        let Some((_, first)) = self.turn.filter(|&(turn, _)| turn == end) else {
            self.turn = Some((end, vm));
            return chosen;
        };
        if vm == first {
            return chosen;
        }
        let ready = view.ready(pcpu).filter_map(|task| Some((task, view.thread(task)?)));
        let its = ready.filter(|(_, thread)| {
            let is_its = thread.vcpu.is_some_and(|(vm, _)| vm == first);
            is_its && thread.lag > -(every as i64)
        });
        // Of equals the last to be added.
        let longest = its.max_by_key(|&(task, thread)| (thread.waited, task.0));
        longest.map_or(chosen, |(task, _)| task)
    }

    /// Returns when the slice of a vCPU that was picked `now` ends.
    pub(super) fn slice_until(self, now: u64) -> Option<u64> {
        let every = self.every_ns?;
        // A slice of the least length reaches the end after this one.
        Some((now + *SLICE_NS.start() - 1) / every * every + every)
    }
}
