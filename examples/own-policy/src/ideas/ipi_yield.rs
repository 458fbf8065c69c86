//! A vCPU that spins after it has sent an IPI yields to the receiver (patches of November 2025, "IPI-aware directed
//! yield").
//!
//! The patches also know when the receiver has taken the interrupt. Here the receiver is forgotten at the first yield.

use holdfast_host::{Pause, Policy, RunState, VcpuId, View};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct IpiYield {
    /// For each vCPU those to which it has sent an IPI since its last yield.
    receivers: Vec<Vec<VcpuId>>,
}

impl IpiYield {
    fn of(&mut self, sender: VcpuId) -> &mut Vec<VcpuId> {
        let room = self.receivers.len().max(sender.0 as usize + 1);
        self.receivers.resize(room, Vec::new());
        &mut self.receivers[sender.0 as usize]
    }
}

impl Policy for IpiYield {
    fn about(&self) -> &'static str {
        "a vCPU that waits for an answer to its IPI yields to the receiver (2025)"
    }

    fn ipi(&mut self, view: &View<'_>, from: VcpuId, to: VcpuId) {
        let receivers = self.of(from);
        if is_ready(view, to) && !receivers.contains(&to) {
            receivers.push(to);
        }
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let receivers = self.of(spinner);
        receivers.retain(|&to| is_ready(view, to));
        receivers.pop().map_or(Pause::Kernel, Pause::YieldTo)
    }
}

fn is_ready(view: &View<'_>, vcpu: VcpuId) -> bool {
    let thread = view.thread_of(vcpu).and_then(|task| view.thread(task));
    thread.is_some_and(|at| at.run == RunState::Ready)
}
