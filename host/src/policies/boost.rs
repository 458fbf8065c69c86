//! Boost: a vCPU that waits lets the vCPU that it waits for take its own pCPU.

use super::section::{awaited, is_in_queue, ready};
use crate::boundary::VcpuId;
use crate::sched::seam::{Pause, Policy, View};

/// A vCPU that takes a pause exit in kernel code lets the sibling that it waits for take the pCPU for which that one
/// waits, and spins on. If it waits for no preempted vCPU, it spins on at once.
///
/// That sibling is the receiver of its IPI if its word names one. Otherwise it is, if the word says that the vCPU waits
/// for a lock, of the siblings that were preempted the one in a critical section that has waited longest, and after
/// that one in the queue of a lock. No vCPU moves, and the waiter keeps its slice: a yield forfeits it. The sibling is
/// charged for what it runs. While it is more than 3 ms ahead of its turn, on any level of groups, it gets nothing.
#[derive(Clone, Debug, Default)]
pub struct Boost;

impl Policy for Boost {
    fn about(&self) -> &'static str {
        "a vCPU that waits lets the sibling that it waits for take its pCPU, and spins on"
    }

    fn reports_yields(&self) -> bool {
        true
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let target = view.thread_of(spinner).and_then(|task| {
            let guest = view.thread(task)?.guest;
            let waits = is_in_queue(&guest) || guest.word.is_some_and(|word| word.waits_for.is_some());
            let awaited = (guest.in_kernel && waits).then(|| awaited(view, task, |task| ready(view, task)))?;
            awaited?.1.vcpu
        });
        target.map_or(Pause::Resume, |(_, vcpu)| Pause::Boost(vcpu))
    }
}
