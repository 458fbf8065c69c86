//! The main threads of VMMs that wake now and then, or whose VMs come or go in the course of a run. They are host
//! tasks, which need a pCPU like any other. Starting and removing a VM takes no time of theirs.

use std::collections::VecDeque;

use holdfast_host::{Event, Host, Nanos, PcpuId, TaskConfig, TaskEvent, TaskId, VmId, VmmEvent};
use holdfast_machine::Picos;
use holdfast_workloads::stream_seed;

use crate::config::Vm as VmConfig;
use crate::core::failure::Failure;

/// How long a main thread that woke computes before it sleeps again: measured of Holdfast's own VMM on Linux 6.1, which
/// looks whether the run was called off (docs/findings/stock-linux.md).
const LOOK: Picos = Picos::from_nanos(12_000);

/// The main thread of a VMM.
#[derive(Clone, Debug)]
pub struct Vmm {
    /// The VM.
    pub vm: VmId,
    /// What it still has to do, and when. Nanoseconds.
    plan: VecDeque<(u64, Act)>,
    /// Time between two wakeups while the VM is there, in nanoseconds. `None` if it sleeps all the time.
    period_ns: Option<u64>,
    /// Its first sleep with the VM there, in nanoseconds: VMMs do not wake in step.
    first_ns: Option<u64>,
    is_there: bool,
    /// CPU time until it looks at its plan.
    remaining: Picos,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Start,
    Remove,
}

impl Vmm {
    /// Adds the thread of the VMM of `vm` to the host, or none if it would have nothing to do. `seed` is that of the
    /// run.
    ///
    /// # Errors
    /// If the host does not accept a task.
    pub fn add(host: &mut Host, id: VmId, vm: &VmConfig, seed: u64) -> Result<Option<(TaskId, Vmm)>, Failure> {
        let start = (vm.stay.from_ns > 0).then_some((vm.stay.from_ns, Act::Start));
        let remove = vm.stay.until_ns.map(|at| (at, Act::Remove));
        let plan: VecDeque<_> = start.into_iter().chain(remove).collect();
        if plan.is_empty() && vm.vmm.period_ns.is_none() {
            return Ok(None);
        }
        let task = host.add_task(&TaskConfig::default());
        let task = task.map_err(|error| Failure::Invalid(error.to_string()))?;
        let vmm = Vmm {
            vm: id,
            plan,
            period_ns: vm.vmm.period_ns,
            first_ns: vm
                .vmm
                .period_ns
                .map(|period| stream_seed(seed, id.0, "vmm") % period.max(1)),
            is_there: start.is_none(),
            remaining: Picos::ZERO,
        };
        Ok(Some((task, vmm)))
    }

    /// CPU time until it looks at its plan.
    pub fn remaining(&self) -> Picos {
        self.remaining
    }

    /// It ran for `ran` and is interrupted.
    pub fn ran(&mut self, ran: Picos) {
        self.remaining = Picos(self.remaining.0.saturating_sub(ran.0));
    }

    /// What it does on `pcpu` at `now`, in nanoseconds: what is due, or it sleeps until something is.
    pub fn next(&mut self, pcpu: PcpuId, now: u64) -> Event {
        let vm = self.vm;
        let due = self.plan.front().copied();
        let Some((_, act)) = due.filter(|(at, _)| *at <= now) else {
            let period = self.period_ns.filter(|_| self.is_there);
            let wakes = period.map(|period| now + self.first_ns.take().unwrap_or(period));
            self.remaining = if period.is_some() { LOOK } else { Picos::ZERO };
            let until = due.map(|(at, _)| at).into_iter().chain(wakes).min().map(Nanos);
            return Event::Task(TaskEvent::Sleeps { pcpu, until });
        };
        self.plan.pop_front();
        self.is_there = matches!(act, Act::Start);
        match act {
            Act::Start => Event::Vmm(VmmEvent::VmStarts { pcpu, vm }),
            Act::Remove => Event::Vmm(VmmEvent::VmEnds { pcpu, vm }),
        }
    }
}
