//! What a guest policy sees, and how the kernel asks it.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{CpuId, Paravirt};

use crate::cpu::ThisCpu;
use crate::machine::{Cpu, Machine};
use crate::policy::{Cpus, GuestPolicy, Placed, Seen};

impl<M: Machine> Seen for ThisCpu<'_, M> {
    fn here(&self) -> CpuId {
        self.id
    }

    fn count(&self) -> u32 {
        self.system.cpu_count()
    }

    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn load(&self, cpu: CpuId) -> u32 {
        self.system.load_of(cpu)
    }

    fn is_online(&self, cpu: CpuId) -> bool {
        self.system.is_online(cpu)
    }

    fn is_preempted(&self, cpu: CpuId) -> bool {
        self.cpu.is_preempted(cpu)
    }

    fn steal_ns(&self, cpu: CpuId) -> u64 {
        // ORDERING: Relaxed: one word, which only grows.
        self.cpu.steal_time(cpu).steal.load(Relaxed)
    }
}

impl<M: Machine> ThisCpu<'_, M> {
    /// Asks the policy by `ask`. Returns `kernel` if there is none.
    #[inline]
    pub(crate) fn ask<R>(&self, kernel: R, ask: impl FnOnce(&dyn GuestPolicy, &Cpus<'_>) -> R) -> R {
        match &self.system.policy {
            Some(policy) => ask(&**policy, &Cpus::new(self)),
            None => kernel,
        }
    }

    /// Returns the CPU for a task for which the kernel would take `kernel`.
    #[inline]
    pub(crate) fn placed(&self, placed: Placed, kernel: CpuId) -> CpuId {
        let answer = self.ask(kernel, |policy, cpus| policy.place(cpus, placed, kernel));
        if answer == kernel || Cpus::new(self).is_online(answer) {
            answer
        } else {
            kernel
        }
    }
}
