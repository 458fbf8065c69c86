//! What the scheduler owns, and the CPU that executes the caller as the scheduler and all layers above it see it.

use alloc::boxed::Box;
use core::cell::OnceCell;
use core::ops::Deref;
use core::sync::atomic::Ordering::SeqCst;

use holdfast_locks::{CpuId, OsqTable, Platform};

use super::queue::CpuQueue;
use crate::apic;
use crate::class::{Event, LockClass};
use crate::config::Placement;
use crate::cpu::{System, ThisCpu, WATCHED};
use crate::ids::{CpuTable, TaskId};
use crate::ipi;
use crate::machine::Machine;
use crate::measured::{Measured, Step};
use crate::pages::Memory;
use crate::smp::Calls;
use crate::sync::{SpinLock, WordOf};
use crate::task::{Task, Tasks};
use crate::tlb::Tlbs;

/// The tasks and the run queues, and what tasks need to sleep and wake.
pub(crate) struct Scheduler<M: Machine> {
    pub(crate) system: System<M>,
    pub(crate) tasks: Tasks<M>,
    pub(crate) tlbs: Tlbs<M>,
    pub(crate) calls: Calls<M>,
    /// Free pages and slabs, which all layers above allocate.
    pub(crate) memory: Memory<M>,
    pub(crate) measured: Measured<M>,
    /// The CPUs' nodes in queues of tasks that spin for sleeping locks.
    pub(crate) spinners: OsqTable<WordOf<M>>,
    pub(crate) queues: CpuTable<CpuQueue<M>>,
    hooks: OnceCell<Box<dyn TaskHooks<M>>>,
}

/// What the waker will do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeHint {
    /// Nothing in particular.
    Plain,
    /// The waker will sleep soon, so the woken task may have its CPU (`WF_SYNC`).
    Sync,
}

/// What the layers above do when a task begins and when it is gone.
pub(crate) trait TaskHooks<M: Machine> {
    /// Returns the body of the context for slot `id`. It calls [`TaskHooks::run`].
    fn body(&self, id: TaskId) -> Box<dyn FnOnce()>;
    /// Runs one task after another of the slot `id`; never returns.
    fn run(&self, id: TaskId);
    /// The scheduler no longer needs the dead task `id`.
    fn left_dead(&self, on: &OnCpu<'_, M>, id: TaskId);
}

impl<M: Machine> Scheduler<M> {
    /// Makes tables of `slots` tasks, of which the first are the idle tasks of the CPUs.
    pub(crate) fn new(system: System<M>, slots: u32) -> Self {
        let cpus = system.cpu_count();
        let placement = system.config.placement;
        Scheduler {
            tasks: Tasks::new(slots, |id| Task::new(id, cpus)),
            memory: Memory::new(
                system.numa.count,
                cpus,
                system.config.profile.is_some(),
                system.config.fresh_memory,
            ),
            measured: Measured::new(system.config.profile.as_deref(), system.numa.count, cpus, slots),
            tlbs: Tlbs::new(cpus, slots),
            calls: Calls::new(cpus),
            spinners: OsqTable::new(cpus as usize),
            queues: CpuTable::new(cpus, |cpu| CpuQueue::new(cpu, placement)),
            hooks: OnceCell::new(),
            system,
        }
    }

    pub(crate) fn set_hooks(&self, hooks: Box<dyn TaskHooks<M>>) {
        assert!(self.hooks.set(hooks).is_ok(), "the scheduler's hooks are set twice");
    }

    pub(crate) fn hooks(&self) -> &dyn TaskHooks<M> {
        &**self.hooks.get().expect("the scheduler runs before its hooks are set")
    }

    /// The CPU that executes the caller. The value is valid until the caller blocks or can be preempted.
    #[inline(always)]
    pub(crate) fn on_cpu(&self) -> OnCpu<'_, M> {
        OnCpu {
            this: self.system.this_cpu(),
            sched: self,
        }
    }

    /// The task `id`.
    #[inline(always)]
    pub(crate) fn task(&self, id: TaskId) -> &Task<M> {
        &self.tasks[id]
    }

    /// Makes every CPU flush its translations of `space`.
    pub(crate) fn flush_space(&self, space: TaskId) {
        self.tlbs.flush_space(&self.on_cpu(), &self.calls, space);
    }
}

/// The CPU that executes the caller, with the scheduler.
pub(crate) struct OnCpu<'k, M: Machine> {
    this: ThisCpu<'k, M>,
    pub(crate) sched: &'k Scheduler<M>,
}

impl<'k, M: Machine> Deref for OnCpu<'k, M> {
    type Target = ThisCpu<'k, M>;

    #[inline(always)]
    fn deref(&self) -> &ThisCpu<'k, M> {
        &self.this
    }
}

impl<'k, M: Machine> OnCpu<'k, M> {
    /// Executes `step` as a measured kernel does: [`Measured::execute`].
    #[inline]
    pub(crate) fn measured<'a>(&'a self, step: Step, pick: impl Fn(LockClass) -> Option<&'a SpinLock<(), M>>) -> bool {
        self.sched.measured.execute(self, step, &self.sched.memory, pick)
    }

    /// What the scheduler has of this CPU.
    #[inline(always)]
    pub(crate) fn queue(&self) -> &'k CpuQueue<M> {
        &self.sched.queues[self.id]
    }

    /// The task `id`.
    #[inline(always)]
    pub(crate) fn task(&self, id: TaskId) -> &'k Task<M> {
        self.sched.task(id)
    }

    /// The address space that the task that runs here uses.
    #[inline(always)]
    pub(crate) fn space(&self) -> TaskId {
        self.sched.tlbs.space_of(self.current())
    }

    /// The task that runs here.
    #[inline(always)]
    pub(crate) fn current_task(&self) -> &'k Task<M> {
        self.sched.task(self.current())
    }

    /// Takes the load of `task`, which is not ready there, from the average of `cpu`, if that has it.
    pub(crate) fn detach_load(&self, cpu: CpuId, task: &Task<M>) {
        if self.system.config.placement == Placement::Averages {
            self.system.cpus[cpu].average.detach(task.average.last());
        }
    }

    /// Asks CPU `target` to call its scheduler. The caller holds the lock of that CPU's run queue.
    pub(crate) fn ask_to_reschedule(&self, target: CpuId) {
        let asked = &self.system.cpus[target].need_resched;
        if asked.get() != 0 {
            return;
        }
        asked.set(1);
        if target != self.id {
            self.send_reschedule(target);
        }
    }

    /// Sends CPU `target` the reschedule IPI. An idle CPU that watches its word is told by a write to it instead
    /// (`set_nr_if_polling`).
    pub(crate) fn send_reschedule(&self, target: CpuId) {
        let word = &self.system.idle_words[target];
        // ORDERING: SeqCst: pairs with the swaps of `begin_to_watch` and `end_watch`. Either this finds the CPU
        // watching, and the CPU finds what it is woken for when it ends its watch; or the CPU begins to watch after
        // that was written, and finds it, or gets the IPI.
        if self.cpu.compare_exchange(word, WATCHED, 0, SeqCst, SeqCst).is_ok() {
            return;
        }
        self.local.count(Event::RescheduleIpis);
        ipi::send(self, target, apic::RESCHEDULE_VECTOR);
    }
}
