//! What a guest policy sees, and how the kernel asks it.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_abi::StealTime;
use holdfast_locks::{CpuId, Paravirt};

use crate::cpu::ThisCpu;
use crate::ids::TaskId;
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
        let allowed = answer == kernel || Cpus::new(self).is_online(answer);
        self.checked(answer, allowed, kernel)
    }

    /// Returns the CPU to which the policy moves `task`, which runs here.
    pub(crate) fn pushed(&self, task: Option<TaskId>) -> Option<CpuId> {
        let answer = self.ask(None, |policy, cpus| policy.tick(cpus, task));
        let allowed = answer.is_none_or(|to| Cpus::new(self).is_online(to));
        self.checked(answer, allowed, None)
    }

    /// Returns what the host reads of this CPU, of which the kernel would say `kernel`.
    #[inline]
    pub(crate) fn word(&self, kernel: u32) -> u32 {
        let answer = self.ask(kernel, |policy, cpus| policy.word(cpus, kernel));
        let target = answer >> StealTime::TARGET_SHIFT;
        let names_none = answer & StealTime::WAITS_FOR_IPI != 0 && (target >= self.count() || target == self.id.0);
        self.checked(answer, answer == kernel || !names_none, kernel)
    }

    /// Returns `answer` if it is `allowed`, else `kernel`.
    #[inline]
    fn checked<R>(&self, answer: R, allowed: bool, kernel: R) -> R {
        if allowed {
            return answer;
        }
        self.local.refused.add(1);
        kernel
    }
}
