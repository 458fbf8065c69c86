//! The guests of a run that come or go, in the order of their times.

use std::collections::VecDeque;
use std::time::Duration;

use kvm_ioctls::VcpuFd;

use crate::vm::Vm;

/// A guest that comes or goes.
pub(crate) enum Change {
    Start { guest: usize, vcpus: Vec<VcpuFd> },
    Remove { guest: usize },
}

/// The guests that have still to come or go, each with its time since the start of the run. The earliest is first.
pub(crate) struct Changes(VecDeque<(Duration, Change)>);

impl Changes {
    /// Returns the changes of a run of `vms`. `vcpus` are theirs.
    pub(crate) fn of(vms: &[Vm], vcpus: Vec<Vec<VcpuFd>>) -> Changes {
        let starts = vms.iter().zip(vcpus).enumerate();
        let starts = starts.map(|(guest, (vm, vcpus))| (vm.from, Change::Start { guest, vcpus }));
        let removals = vms.iter().enumerate();
        let removals = removals.filter_map(|(guest, vm)| Some((vm.until?, Change::Remove { guest })));
        let mut all: Vec<_> = starts.chain(removals).collect();
        all.sort_by_key(|&(at, _)| at);
        Changes(all.into())
    }

    /// Takes the next change if it is due at `now`.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Change> {
        let is_due = self.0.front().is_some_and(|&(at, _)| at <= now);
        is_due.then(|| self.0.pop_front()).flatten().map(|(_, change)| change)
    }

    /// Returns the time from `now` to the next change.
    pub(crate) fn pause(&self, now: Duration) -> Duration {
        self.0.front().map_or(Duration::MAX, |&(at, _)| at.saturating_sub(now))
    }
}
