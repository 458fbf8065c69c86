//! Grace: a vCPU that is to leave its pCPU in the midst of a critical section runs on for a moment.

use alloc::vec::Vec;

use super::section::is_in_section;
use crate::boundary::{Nanos, PcpuId, TaskId};
use crate::sched::seam::{Policy, View};

/// A vCPU in a critical section runs on for `MICROSECONDS` when it is to leave its pCPU, and again if the section
/// lasts, at most `IN_A_ROW` times since it was picked.
///
/// It is charged for that time, so it waits longer afterwards.
#[derive(Clone, Debug, Default)]
pub struct Grace<const MICROSECONDS: u64 = 50, const IN_A_ROW: u32 = 4> {
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
        "a vCPU in a critical section runs on for 50 us when it is to leave its pCPU, up to 4 times"
    }

    fn slice(&mut self, _: &View<'_>, pcpu: PcpuId, _: TaskId) -> Option<Nanos> {
        *self.given(pcpu) = 0;
        None
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let thread = view.thread(task)?;
        let given = self.given(pcpu);
        if thread.vcpu.is_none() || *given == IN_A_ROW || !is_in_section(&thread.guest) {
            return None;
        }
        *given += 1;
        Some(Nanos(1_000 * MICROSECONDS))
    }
}
