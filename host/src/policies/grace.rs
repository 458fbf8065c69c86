//! Grace: a vCPU that is to leave its pCPU while others need it soon runs on for a moment.

use alloc::vec::Vec;

use super::section::{holds_up, is_in_queue, is_in_section};
use crate::boundary::{Nanos, PcpuId, TaskId};
use crate::sched::seam::{GuestView, Policy, RunState, View};

/// A vCPU in a critical section runs on for `MICROSECONDS` when it is to leave its pCPU, and again if the section
/// lasts, at most `IN_A_ROW` times since it was picked. So does one in the queue of a lock, unless a sibling that holds
/// a lock or is in a queue was preempted: then its turn is not near.
///
/// It is charged for that time, so it waits longer afterwards.
#[derive(Clone, Debug, Default)]
pub struct Grace<const MICROSECONDS: u64 = 50, const IN_A_ROW: u32 = 20> {
    /// For each pCPU how often its thread has run on since it was picked.
    given: Vec<u32>,
}

impl<const MICROSECONDS: u64, const IN_A_ROW: u32> Grace<MICROSECONDS, IN_A_ROW> {
    fn given(&mut self, pcpu: PcpuId) -> &mut u32 {
        let index = pcpu.0 as usize;
        self.given.resize(self.given.len().max(index + 1), 0);
        &mut self.given[index]
    }
}

impl<const MICROSECONDS: u64, const IN_A_ROW: u32> Policy for Grace<MICROSECONDS, IN_A_ROW> {
    fn about(&self) -> &'static str {
        "a vCPU in a critical section or in the queue of a lock runs on for 50 us when it is to leave its pCPU, up to 20 times"
    }

    fn reports_yields(&self) -> bool {
        true
    }

    fn slice(&mut self, _: &View<'_>, pcpu: PcpuId, _: TaskId) -> Option<Nanos> {
        *self.given(pcpu) = 0;
        None
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let thread = view.thread(task)?;
        let given = self.given(pcpu);
        if thread.vcpu.is_none() || *given == IN_A_ROW || !is_needed(view, task, &thread.guest) {
            return None;
        }
        *given += 1;
        Some(Nanos(1_000 * MICROSECONDS))
    }
}

/// Returns whether others wait for `task`, whose guest shows `guest`, and will not wait long if it runs.
fn is_needed(view: &View<'_>, task: TaskId, guest: &GuestView) -> bool {
    let mut siblings = view.siblings(task).filter_map(|sibling| view.thread(sibling));
    is_in_section(guest)
        || is_in_queue(guest) && !siblings.any(|sibling| sibling.run == RunState::Ready && holds_up(&sibling.guest))
}
