//! The main threads of VMMs whose VMs come or go in the course of a run. They are host tasks, which need a pCPU like
//! any other. The time that they take for their own work is not simulated.

use std::collections::VecDeque;

use holdfast_host::{Event, Host, Nanos, PcpuId, TaskConfig, TaskId, VmId};

use crate::core::failure::Failure;
use crate::run::config::Stay;

/// The main thread of a VMM.
#[derive(Clone, Debug)]
pub struct Vmm {
    vm: VmId,
    /// What it still has to do, and when. Nanoseconds.
    plan: VecDeque<(u64, Act)>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Start,
    Remove,
}

impl Vmm {
    /// Adds the thread of the VMM of `vm` to the host, or none if the VM is there for all the run.
    ///
    /// # Errors
    /// If the host does not accept a task.
    pub fn add(host: &mut Host, vm: VmId, stay: Stay) -> Result<Option<(TaskId, Vmm)>, Failure> {
        let start = (stay.from_ns > 0).then_some((stay.from_ns, Act::Start));
        let remove = stay.until_ns.map(|at| (at, Act::Remove));
        let plan: VecDeque<_> = start.into_iter().chain(remove).collect();
        if plan.is_empty() {
            return Ok(None);
        }
        let task = host.add_task(&TaskConfig::default());
        let task = task.map_err(|error| Failure::Invalid(error.to_string()))?;
        Ok(Some((task, Vmm { vm, plan })))
    }

    /// What it does on `pcpu` at `now`, in nanoseconds: what is due, or it sleeps until something is.
    pub fn next(&mut self, pcpu: PcpuId, now: u64) -> Event {
        let vm = self.vm;
        let due = self.plan.front().copied();
        let Some((_, act)) = due.filter(|(at, _)| *at <= now) else {
            let until = due.map(|(at, _)| Nanos(at));
            return Event::TaskSleeps { pcpu, until };
        };
        self.plan.pop_front();
        match act {
            Act::Start => Event::VmStarts { pcpu, vm },
            Act::Remove => Event::VmEnds { pcpu, vm },
        }
    }
}
