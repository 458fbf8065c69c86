//! Tasks: what the kernel knows of each flow of control.
//!
//! Tasks live in one table for the whole run; a slot keeps its context and stack when its task dies, and the next task
//! there starts on them. Idle tasks come first: task `i` is CPU `i`'s.

use alloc::boxed::Box;
use core::cell::OnceCell;

use holdfast_locks::Word;

use crate::class::LockClass;
use crate::kernel::CpuIndex;
use crate::local::{Local, Local32, Shared32};
use crate::machine::Machine;
use crate::mm::AddressSpace;
use crate::program::Start;
use crate::sync::{SpinLock, WordOf};
use crate::wait::{Completion, WaitQueue};

/// A task's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// No task.
    pub(crate) const NONE: TaskId = TaskId(u32::MAX);
}

/// What a task does, as far as wake-ups care. Values are bits so that a wake-up can name several.
pub(crate) mod state {
    /// Runs, or is ready to.
    pub(crate) const RUNNING: u32 = 0;
    /// Sleeps; a signal ends it.
    pub(crate) const INTERRUPTIBLE: u32 = 1;
    /// Sleeps for something that will come.
    pub(crate) const UNINTERRUPTIBLE: u32 = 2;
    /// Will never run again.
    pub(crate) const DEAD: u32 = 4;
    /// On its way from asleep to a run queue.
    pub(crate) const WAKING: u32 = 8;
    /// Any sleep.
    pub(crate) const ASLEEP: u32 = INTERRUPTIBLE | UNINTERRUPTIBLE;
}

/// One task.
pub(crate) struct Task<M: Machine> {
    context: OnceCell<M::Context>,

    // Scheduler. Under the lock of the run queue that has it, or its own while it is on none.
    pub(crate) wake_lock: SpinLock<(), M>,
    pub(crate) state: Shared32,
    /// The CPU that it runs on, or ran on last.
    pub(crate) cpu: Local32,
    /// Not 0: counted in a run queue.
    pub(crate) queued: Shared32,
    /// 1 while a CPU executes it or still uses its stack.
    pub(crate) on_cpu: WordOf<M>,
    /// Virtual run time; relative to the run queue's smallest while it is on its way between CPUs.
    pub(crate) vruntime: Local,
    /// When its run time was last accounted.
    pub(crate) accounted_at: Local,
    /// Run time in all.
    pub(crate) run_time: Local,
    /// `run_time` when it was last picked.
    pub(crate) picked_at: Local,
    /// CPU + 1 that its successor shall put it on.
    pub(crate) move_to: Local32,
    /// Id + 1 of the next task in a CPU's wake list.
    pub(crate) wake_next: Local32,
    /// Whom it woke last, how many times that was another one than before, and since when these count (`wakee_flips`).
    pub(crate) last_wakee: Local32,
    pub(crate) wakee_flips: Local32,
    pub(crate) wakee_flips_since: Local,

    // The wait queue that it is in, under that queue's lock.
    pub(crate) wait_next: Local32,
    pub(crate) wait_previous: Local32,
    pub(crate) waiting: Shared32,
    /// The futex that it sleeps on, under its bucket's lock.
    pub(crate) futex: Local,

    /// Not 0: the semaphore operation that it sleeps for is done.
    pub(crate) granted: Shared32,
    /// Not 0: it waits for a reader-writer semaphore to write. Under the semaphore's queue lock.
    pub(crate) wants_write: Local32,

    // Process. Under the task list's lock.
    pub(crate) parent: Local32,
    pub(crate) children: Local32,
    /// Id of the first dead child to be reaped.
    pub(crate) dead_children: Shared32,
    pub(crate) sibling: Local32,
    /// Who still needs the slot: the scheduler, the parent.
    pub(crate) references: Shared32,
    pub(crate) child_exit: WaitQueue<M>,
    pub(crate) signal_lock: SpinLock<(), M>,
    /// Not 0: a child's death interrupts its sleeps (a SIGCHLD handler).
    pub(crate) wants_child_signal: Local32,
    pub(crate) signal_pending: Shared32,
    pub(crate) files_lock: SpinLock<(), M>,
    pub(crate) descriptors: Local32,
    /// Whose address space it uses: its own slot's or, after vfork, its parent's.
    pub(crate) space: Local32,
    pub(crate) own_space: AddressSpace<M>,
    /// Which of the threads of its address space it is, in the order of their making.
    pub(crate) thread: Local32,
    /// Pages of the mapping that it works in; 0: it works in its heap.
    pub(crate) mapped_pages: Local32,
    /// The parent of a vfork waits for this.
    pub(crate) released_parent: Completion<M>,
    /// Not 0: the parent waits until the child executes or exits.
    pub(crate) is_vfork: Local32,
    start: [Local32; 2],
}

impl<M: Machine> Task<M> {
    fn new(index: u32, cpus: u32) -> Self {
        Task {
            context: OnceCell::new(),
            wake_lock: SpinLock::new(LockClass::TaskWake, ()),
            state: Shared32::new(state::RUNNING),
            cpu: Local32::new(if index < cpus { index } else { 0 }),
            queued: Shared32::new(0),
            on_cpu: WordOf::<M>::new(u32::from(index < cpus)),
            vruntime: Local::new(0),
            accounted_at: Local::new(0),
            run_time: Local::new(0),
            picked_at: Local::new(0),
            move_to: Local32::new(0),
            wake_next: Local32::new(0),
            last_wakee: Local32::new(TaskId::NONE.0),
            wakee_flips: Local32::new(0),
            wakee_flips_since: Local::new(0),
            wait_next: Local32::new(TaskId::NONE.0),
            wait_previous: Local32::new(TaskId::NONE.0),
            waiting: Shared32::new(0),
            futex: Local::new(0),
            granted: Shared32::new(0),
            wants_write: Local32::new(0),
            parent: Local32::new(TaskId::NONE.0),
            children: Local32::new(0),
            dead_children: Shared32::new(TaskId::NONE.0),
            sibling: Local32::new(TaskId::NONE.0),
            references: Shared32::new(0),
            child_exit: WaitQueue::new(),
            signal_lock: SpinLock::new(LockClass::Signal, ()),
            wants_child_signal: Local32::new(0),
            signal_pending: Shared32::new(0),
            files_lock: SpinLock::new(LockClass::Files, ()),
            descriptors: Local32::new(0),
            space: Local32::new(index),
            own_space: AddressSpace::new(cpus),
            thread: Local32::new(0),
            mapped_pages: Local32::new(0),
            released_parent: Completion::new(),
            is_vfork: Local32::new(0),
            start: [Local32::new(0), Local32::new(0)],
        }
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

    pub(crate) fn set_start(&self, start: Start) {
        self.start[0].set(start.role);
        self.start[1].set(start.argument);
    }

    /// What it was started with.
    pub(crate) fn start(&self) -> Start {
        Start::new(self.start[0].get(), self.start[1].get())
    }
}

/// All tasks.
pub(crate) struct Tasks<M: Machine> {
    all: Box<[Task<M>]>,
    cpus: u32,
    /// First free slot, linked by `sibling`. Under the task list's lock.
    free: Local32,
    /// Tasks that may still be made: unreaped ones count. Under the task list's lock.
    room: Local32,
}

impl<M: Machine> Tasks<M> {
    /// Slots for `cpus` idle tasks and at most `most` others at a time. A parent may have reaped a task from which the CPU that
    /// it died on has yet to switch away: `leaving` more slots are for those.
    pub(crate) fn new(cpus: u32, most: u32, leaving: u32) -> Self {
        let others = most + leaving;
        let count = cpus + others;
        let all: Box<[Task<M>]> = (0..count).map(|index| Task::new(index, cpus)).collect();
        for index in cpus..count {
            let next = if index + 1 < count { index + 1 } else { TaskId::NONE.0 };
            all[index as usize].sibling.set(next);
        }
        let free = if others > 0 { cpus } else { TaskId::NONE.0 };
        Tasks {
            all,
            cpus,
            free: Local32::new(free),
            room: Local32::new(most),
        }
    }

    /// The task `id`.
    #[inline(always)]
    pub(crate) fn get(&self, id: TaskId) -> &Task<M> {
        &self.all[id.0 as usize]
    }

    /// The idle task of `cpu`.
    #[inline(always)]
    pub(crate) fn idle_of(&self, cpu: CpuIndex) -> TaskId {
        debug_assert!(cpu < self.cpus);
        TaskId(cpu)
    }

    /// Whether `id` is an idle task.
    #[inline(always)]
    pub(crate) fn is_idle(&self, id: TaskId) -> bool {
        id.0 < self.cpus
    }

    /// Takes a free slot. The caller holds the task list's lock.
    pub(crate) fn take_slot(&self) -> Option<TaskId> {
        let id = self.free.get();
        if id == TaskId::NONE.0 || self.room.get() == 0 {
            return None;
        }
        self.room.sub(1);
        self.free.set(self.all[id as usize].sibling.get());
        Some(TaskId(id))
    }

    /// A task was reaped: another one may be made. The caller holds the task list's lock.
    pub(crate) fn reaped(&self) {
        self.room.add(1);
    }

    /// Gives a slot back. The caller holds the task list's lock.
    pub(crate) fn give_slot(&self, id: TaskId) {
        self.get(id).sibling.set(self.free.get());
        self.free.set(id.0);
    }
}
