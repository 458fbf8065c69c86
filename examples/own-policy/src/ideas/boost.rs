//! A waiter gives its time to the vCPU that most likely holds the lock (Uhlig and others, VM 2004; Friebel and
//! Biemueller, 2008).
//!
//! Nothing says which vCPU holds the lock. Of the siblings that were preempted in kernel code, one with interrupts
//! masked comes first, and then the one that has waited longest. The kernel's own pause exit takes them in turn.

use holdfast_host::{Pause, Policy, VcpuId, View};

use super::was_in_kernel;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Boost;

impl Policy for Boost {
    fn about(&self) -> &'static str {
        "a waiter yields to the vCPU that most likely holds the lock (2004)"
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let Some(waiter) = view.thread_of(spinner) else {
            return Pause::Kernel;
        };
        let candidates = view.siblings(waiter).filter(|&task| was_in_kernel(view, task));
        let threads = candidates.filter_map(|task| view.thread(task));
        let holder = threads.max_by_key(|at| (at.guest.masked, at.waited));
        match holder.and_then(|holder| holder.vcpu) {
            Some((_, vcpu)) => Pause::YieldTo(vcpu),
            None => Pause::Kernel,
        }
    }
}
