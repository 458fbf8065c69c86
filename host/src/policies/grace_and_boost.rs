//! Grace and boost at once.

use super::boost::Boost;
use super::grace::Grace;
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId};
use crate::sched::seam::{Pause, Policy, View};

/// [`Grace`] and [`Boost`].
#[derive(Clone, Debug, Default)]
pub struct GraceAndBoost {
    grace: Grace,
    boost: Boost,
}

impl Policy for GraceAndBoost {
    fn about(&self) -> &'static str {
        "grace and boost"
    }

    fn slice(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.grace.slice(view, pcpu, task)
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.grace.slice_ends(view, pcpu, task)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        self.boost.pause_exit(view, spinner)
    }
}
