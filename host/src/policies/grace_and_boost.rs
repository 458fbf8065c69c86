//! Grace, boost and spread at once.

use super::boost::Boost;
use super::grace::Grace;
use super::spread::Spread;
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId};
use crate::sched::seam::{Pause, Policy, View};

/// [`Grace`] and [`Boost`], and [`Spread`] for waiters whose pause exit boosts none.
#[derive(Clone, Debug, Default)]
pub struct GraceAndBoost {
    grace: Grace,
    boost: Boost,
    spread: Spread,
}

impl Policy for GraceAndBoost {
    fn about(&self) -> &'static str {
        "grace, boost, and waiters that leave while their guest runs on all pCPUs that it has by right"
    }

    fn reports_yields(&self) -> bool {
        true
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        self.spread.pick(view, pcpu, kernel)
    }

    fn slice(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.spread.slice(view, pcpu, task);
        self.grace.slice(view, pcpu, task)
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        self.grace.slice_ends(view, pcpu, task)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        match self.boost.pause_exit(view, spinner) {
            Pause::Resume => self.spread.pause_exit(view, spinner),
            boost => boost,
        }
    }
}
