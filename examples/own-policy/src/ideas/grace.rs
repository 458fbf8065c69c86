//! A vCPU in the middle of kernel code runs on for a moment when its slice ends (Kashyap and others, "eCS", ATC 2018).
//!
//! eCS has guests that say when they are in a critical section. Here the exit by the timer shows whether the vCPU was
//! in kernel code. It gets the grace once for each time that it is picked, and pays it back: it is charged for it.

use holdfast_host::{Nanos, PcpuId, Policy, TaskId, View};

/// The policy, with a grace of `MICROSECONDS`.
#[derive(Clone, Debug, Default)]
pub struct Grace<const MICROSECONDS: u64> {
    /// For each pCPU the thread that has had its grace, and how long it had run then.
    given: Vec<Option<(TaskId, Nanos)>>,
}

impl<const MICROSECONDS: u64> Policy for Grace<MICROSECONDS> {
    fn about(&self) -> &'static str {
        "a vCPU in kernel code runs on when its slice ends (eCS, 2018)"
    }

    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let thread = view.thread(task)?;
        self.given.resize(self.given.len().max(pcpu.0 as usize + 1), None);
        let given = &mut self.given[pcpu.0 as usize];
        // It has run for longer than then, unless it has been picked again.
        let has_had = given.is_some_and(|(before, ran)| before == task && ran < thread.ran);
        if has_had || thread.vcpu.is_none() || !thread.guest.in_kernel || thread.guest.spins {
            return None;
        }
        *given = Some((task, thread.ran));
        Some(Nanos(1_000 * MICROSECONDS))
    }
}
