//! Grace and handover at once.

use super::grace::Grace;
use super::handover::Handover;
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId};
use crate::sched::seam::{Pause, Policy, View, Yield};

/// [`Grace`] and [`Handover`].
#[derive(Clone, Debug, Default)]
pub struct GraceAndHandover {
    grace: Grace,
    handover: Handover,
}

impl Policy for GraceAndHandover {
    fn about(&self) -> &'static str {
        "grace and handover"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        self.handover.pick(view, pcpu, kernel)
    }

    fn slice(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let _ = self.grace.slice(view, pcpu, task);
        self.handover.slice(view, pcpu, task)
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.grace.slice_ends(view, pcpu, task)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        self.handover.pause_exit(view, spinner)
    }

    fn yields(&mut self, view: &View<'_>, from: TaskId, to: TaskId) -> Yield {
        self.handover.yields(view, from, to)
    }
}
