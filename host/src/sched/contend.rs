//! Work under the locks of run queues (docs/spec/host.md, "Locks of run queues").
//!
//! The host decides within one step, so its locks exclude by themselves. What it says here is which locks a real kernel
//! would hold for how long: who waits for whom is a matter of time, which the host does not know.

use crate::boundary::{Command, Cost, PcpuId};
use crate::step::Step;

/// Charges work of `cost` on the run queues of `pcpu` and `other`, under their locks if these are `contended`.
pub(crate) fn charge_locked(contended: bool, cost: Cost, pcpu: u32, other: u32, step: &mut Step<'_>) {
    if contended {
        step.out.push(Command::LockQueues {
            pcpu: PcpuId(step.pcpu),
            queues: [PcpuId(pcpu.min(other)), PcpuId(pcpu.max(other))],
            cost,
        });
    }
    step.charge(cost, 1);
}

/// Charges an attempt of a directed yield, which needs the locks of both run queues before it can tell whether its
/// target is suitable (`double_rq_lock`). Without contention it costs nothing beyond the look at the target.
pub(super) fn charge_yield_attempt(contended: bool, pcpu: u32, target: u32, step: &mut Step<'_>) {
    if contended {
        charge_locked(contended, Cost::SpinCandidate, pcpu, target, step);
    }
}
