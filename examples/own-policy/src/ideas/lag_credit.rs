//! A directed yield costs the yielder virtual time, so that it does not run again at once (patches of November 2025,
//! "yield deboost").
//!
//! The patches compute the penalty from the distance to the target and the length of the queue. Here it is one slice.

use holdfast_host::{Nanos, Policy, TaskId, View, Yield};

/// What a yield costs.
const PENALTY: Nanos = Nanos(3_000_000);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct LagCredit;

impl Policy for LagCredit {
    fn about(&self) -> &'static str {
        "a directed yield costs the yielder 3 ms of virtual time (2025)"
    }

    fn yields(&mut self, view: &View<'_>, from: TaskId, to: TaskId) -> Yield {
        let pcpu = |task| view.thread(task).map(|thread| thread.pcpu);
        match pcpu(from) == pcpu(to) {
            true => Yield::Penalty(PENALTY),
            false => Yield::Kernel,
        }
    }
}
