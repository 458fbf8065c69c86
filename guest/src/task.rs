//! Tasks: what scheduling, waiting and signals need of each flow of control.
//!
//! Tasks are in one table for the whole run. A slot keeps its context and stack when its task dies, and the next task
//! in that slot starts on them. Other subsystems have tables of their own for what they need of each task.

use core::cell::OnceCell;

use holdfast_locks::{CpuId, Word};

use crate::average::Average;
use crate::class::LockClass;
use crate::ids::{LocalId, TaskId, TaskTable};
use crate::local::{Local, Local32, Shared32};
use crate::machine::Machine;
use crate::sync::{SpinLock, WordOf};

/// What a task does, as far as wakeups are concerned. Values are bits so that a wakeup can name several.
pub(crate) mod state {
    /// The task runs, or is ready to.
    pub(crate) const RUNNING: u32 = 0;
    /// The task sleeps. A signal ends the sleep.
    pub(crate) const INTERRUPTIBLE: u32 = 1;
    /// The task sleeps until its event comes. A signal does not end the sleep.
    pub(crate) const UNINTERRUPTIBLE: u32 = 2;
    /// The task will never run again.
    pub(crate) const DEAD: u32 = 4;
    /// The task is between its sleep and a run queue.
    pub(crate) const WAKING: u32 = 8;
    /// Either sleep.
    pub(crate) const ASLEEP: u32 = INTERRUPTIBLE | UNINTERRUPTIBLE;
}

/// One task.
pub(crate) struct Task<M: Machine> {
    context: OnceCell<M::Context>,

    // Scheduler. Under the lock of the run queue that holds the task, or under `wake_lock` while it is on none.
    pub(crate) wake_lock: SpinLock<(), M>,
    pub(crate) state: Shared32,
    /// The CPU that it runs on, or ran on last.
    pub(crate) cpu: LocalId<CpuId>,
    /// Not 0: counted in a run queue.
    pub(crate) queued: Shared32,
    /// 1 while a CPU executes it or still uses its stack.
    pub(crate) on_cpu: WordOf<M>,
    /// Virtual run time. Relative to the run queue's smallest while the task moves between CPUs.
    pub(crate) vruntime: Local,
    /// When its run time was last accounted.
    pub(crate) accounted_at: Local,
    /// Total run time.
    pub(crate) run_time: Local,
    /// `run_time` when it was last picked.
    pub(crate) picked_at: Local,
    /// The part of time in which it has been ready. Kept if its CPU's is.
    pub(crate) average: Average,
    /// Not 0: it wakes on another CPU than it slept on.
    pub(crate) migrates: Local32,
    /// CPU + 1 on which its successor must put it. 0: none.
    pub(crate) move_to: Local32,
    /// Id + 1 of the next task in a CPU's wake list.
    pub(crate) wake_next: Local32,
    /// The task that it woke last.
    pub(crate) last_wakee: LocalId<TaskId>,
    /// How many times `last_wakee` changed since `wakee_flips_since` (`wakee_flips`).
    pub(crate) wakee_flips: Local32,
    pub(crate) wakee_flips_since: Local,

    // The wait queue that it is in, under that queue's lock.
    pub(crate) wait_next: LocalId<TaskId>,
    pub(crate) wait_previous: LocalId<TaskId>,
    pub(crate) waiting: Shared32,
    /// Not 0: it waits there in poll, for data.
    pub(crate) polls: Local32,
    /// Not 0: the semaphore operation that it sleeps for is done.
    pub(crate) granted: Shared32,
    /// Not 0: it waits for a reader-writer semaphore to write. Under the semaphore's queue lock.
    pub(crate) wants_write: Local32,
    /// When it began to wait for that semaphore.
    pub(crate) waits_since: Local,

    // Signals.
    pub(crate) signal_lock: SpinLock<(), M>,
    pub(crate) signal_pending: Shared32,
}

impl<M: Machine> Task<M> {
    /// Makes the slot `id` on a machine with `cpus` CPUs.
    pub(crate) fn new(id: TaskId, cpus: u32) -> Self {
        let is_idle = id.0 < cpus;
        Task {
            context: OnceCell::new(),
            wake_lock: SpinLock::new(LockClass::TaskWake, ()),
            state: Shared32::new(state::RUNNING),
            cpu: LocalId::new(CpuId(if is_idle { id.0 } else { 0 })),
            queued: Shared32::new(0),
            on_cpu: WordOf::<M>::new(u32::from(is_idle)),
            vruntime: Local::new(0),
            accounted_at: Local::new(0),
            run_time: Local::new(0),
            picked_at: Local::new(0),
            average: Average::default(),
            migrates: Local32::new(0),
            move_to: Local32::new(0),
            wake_next: Local32::new(0),
            last_wakee: LocalId::new(TaskId::NONE),
            wakee_flips: Local32::new(0),
            wakee_flips_since: Local::new(0),
            wait_next: LocalId::new(TaskId::NONE),
            wait_previous: LocalId::new(TaskId::NONE),
            waiting: Shared32::new(0),
            polls: Local32::new(0),
            granted: Shared32::new(0),
            wants_write: Local32::new(0),
            waits_since: Local::new(0),
            signal_lock: SpinLock::new(LockClass::Signal, ()),
            signal_pending: Shared32::new(0),
        }
    }

    /// Makes its virtual run time relative to `base`, the smallest of the run queue that it leaves.
    pub(crate) fn leave(&self, base: u64) {
        self.vruntime.set(self.vruntime.get().wrapping_sub(base));
    }

    /// Makes its virtual run time, relative to the smallest of the run queue that it has left, one of a queue whose
    /// smallest is `base`.
    pub(crate) fn join(&self, base: u64) {
        let vruntime = self.vruntime.get().wrapping_add(base);
        // The relative value may have been negative. Then the sum wrapped back to a small value, or stayed huge.
        self.vruntime.set(if vruntime > i64::MAX as u64 { 0 } else { vruntime });
    }

    /// Its saved flow of control.
    pub(crate) fn context(&self) -> &M::Context {
        self.context
            .get()
            .expect("a task is switched to before it has a context")
    }

    /// Gives the slot a context if it has none yet.
    pub(crate) fn ensure_context(&self, make: impl FnOnce() -> M::Context) {
        self.context.get_or_init(make);
    }
}

/// All tasks. The idle tasks of the CPUs come first.
pub(crate) type Tasks<M> = TaskTable<Task<M>>;
