//! Whom directed yields reach. The host does not know who holds a lock; the simulator does.

use crate::core::engine::Engine;

/// A guest's directed yields by what their target was to the yielder.
#[derive(Clone, Copy, Debug, Default)]
pub struct YieldWatch {
    /// It held the lock that the yielder waited for.
    to_holder: u64,
    /// It was the first in line for that lock.
    to_next_waiter: u64,
    /// It was to answer the yielder's IPI.
    to_ipi_target: u64,
    /// It held some other lock.
    to_other_holder: u64,
    /// The lock's holder was tried, and the scheduler did not take it up.
    holder_refused: u64,
}

impl YieldWatch {
    /// Names and values.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("directed_yield_to_holder", self.to_holder),
            ("directed_yield_to_next_waiter", self.to_next_waiter),
            ("directed_yield_to_ipi_target", self.to_ipi_target),
            ("directed_yield_to_other_holder", self.to_other_holder),
            ("directed_yield_holder_refused", self.holder_refused),
        ]
        .into_iter()
    }
}

impl Engine {
    /// `from` has tried to yield to `to`.
    pub fn watch_yield(&mut self, from: u32, to: u32, done: bool) {
        let (spinner, target) = (&self.vcpus[from as usize], &self.vcpus[to as usize]);
        let awaited = spinner.contending.map(|line| &self.records[line.0 as usize].lock);
        let to_holder = awaited.is_some_and(|lock| lock.holder() == Some(to));
        let first = awaited.and_then(|lock| lock.contention()?.waiters.first().copied());
        let to_next = first == Some(to);
        let to_ipi_target = spinner.ipi_target.is_some_and(|(awaited, _)| awaited == to);
        let to_other = !to_holder && !target.held.is_empty();
        let watch = &mut self.vm_of(from).yields;
        if done {
            watch.to_holder += u64::from(to_holder);
            watch.to_next_waiter += u64::from(to_next);
            watch.to_ipi_target += u64::from(to_ipi_target);
            watch.to_other_holder += u64::from(to_other);
        } else {
            watch.holder_refused += u64::from(to_holder);
        }
    }
}
