//! Targets of directed yields. The host does not know which vCPU holds a lock; the simulator does.

use holdfast_host::VcpuId;

use crate::books::happened::View;
use crate::books::locks::LockBook;

/// A guest's directed yields, by the relation of the target to the yielding vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct YieldCounts {
    /// The target held the lock that the yielding vCPU waited for.
    to_holder: u64,
    /// The target was the first in line for that lock.
    to_next_waiter: u64,
    /// The target had to acknowledge the yielding vCPU's IPI.
    to_ipi_target: u64,
    /// The target held another lock.
    to_other_holder: u64,
    /// The target held the lock, and the scheduler did not take the yield up.
    holder_refused: u64,
}

impl YieldCounts {
    /// `from` tried to yield to `to`; `done` if the scheduler took it up.
    pub fn tried(&mut self, view: &View<'_>, locks: &LockBook, from: VcpuId, to: VcpuId, done: bool) {
        let (spinner, target) = (&view.vcpu(from).announced, &view.vcpu(to).announced);
        let awaited = spinner.contending;
        let to_holder = awaited.and_then(|line| locks.holder(line)) == Some(to);
        let to_next = awaited.and_then(|line| locks.first_waiter(line)) == Some(to);
        let to_ipi_target = spinner.ipi_target == Some(to);
        let to_other = !to_holder && !target.held.is_empty();
        if done {
            self.to_holder += u64::from(to_holder);
            self.to_next_waiter += u64::from(to_next);
            self.to_ipi_target += u64::from(to_ipi_target);
            self.to_other_holder += u64::from(to_other);
        } else {
            self.holder_refused += u64::from(to_holder);
        }
    }

    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("directed_yield_to_holder", self.to_holder),
            ("directed_yield_to_next_waiter", self.to_next_waiter),
            ("directed_yield_to_ipi_target", self.to_ipi_target),
            ("directed_yield_to_other_holder", self.to_other_holder),
            ("directed_yield_holder_refused", self.holder_refused),
        ]
    }
}
