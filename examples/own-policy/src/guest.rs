//! A guest policy: a task goes to no vCPU that has tasks and that the host has preempted.
//!
//! The kernel's own `available_idle_cpu` looks only at idle vCPUs. A halted vCPU counts as preempted, too, but has no
//! task. The steal governor, `holdfast_guest::StealGovernor`, is another one.

use holdfast_guest::{Cpus, GuestPolicy, Placed};
use holdfast_locks::CpuId;

/// The policy.
#[derive(Debug, Default)]
pub struct OffPreempted;

impl GuestPolicy for OffPreempted {
    fn about(&self) -> &'static str {
        "no task goes to a busy vCPU that is preempted"
    }

    fn place(&self, cpus: &Cpus<'_>, _: Placed, kernel: CpuId) -> CpuId {
        let waits = |cpu| cpus.load(cpu) > 0 && cpus.is_preempted(cpu);
        match waits(kernel) {
            true => cpus.least_loaded(|cpu| !waits(cpu)).unwrap_or(kernel),
            false => kernel,
        }
    }
}
