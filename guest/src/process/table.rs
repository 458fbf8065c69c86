//! The table of processes: parents and children, and the free slots.

use alloc::format;
use core::cell::Cell;

use crate::class::LockClass;
use crate::costs;
use crate::fs::{FileId, FileSystem};
use crate::ids::{LocalId, TaskId, TaskTable};
use crate::limits::{Limits, Start};
use crate::local::{Local32, Shared32};
use crate::machine::Machine;
use crate::mm::Spaces;
use crate::rwlock::RwLock;
use crate::sched::OnCpu;
use crate::wait::{Completion, WaitQueue};

/// A program to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// The program's file.
    pub file: FileId,
    /// The first shared library's file. The others follow.
    pub library_first: FileId,
    /// The number of libraries.
    pub libraries: u32,
    /// Pages that exec itself touches: arguments, stack, bss.
    pub pages: u32,
}

/// All processes, with their memory and files.
pub(crate) struct Processes<M: Machine> {
    pub(crate) spaces: Spaces<M>,
    pub(crate) files: FileSystem<M>,
    pub(super) slots: TaskTable<Process<M>>,
    /// Linux's `tasklist_lock`.
    pub(super) list: RwLock<FreeSlots, M>,
}

/// The slots that are free.
pub(super) struct FreeSlots {
    /// The first free slot. The others are linked by [`Process::sibling`].
    first: TaskId,
    /// Tasks that may still be created. Tasks that are not reaped yet count as existing.
    pub(super) room: u32,
}

/// What a task is as a process. Under the task list's lock, except where noted.
pub(super) struct Process<M: Machine> {
    pub(super) parent: LocalId<TaskId>,
    pub(super) children: Local32,
    /// Id of the first dead child to be reaped.
    pub(super) dead_children: Shared32,
    pub(super) sibling: LocalId<TaskId>,
    /// The number of users that still need the slot: the scheduler, and the parent.
    pub(super) references: Shared32,
    pub(super) child_exit: WaitQueue<M>,
    /// Not 0: the death of a child interrupts its sleeps (a SIGCHLD handler).
    pub(super) wants_child_signal: Local32,
    /// The parent of a vfork waits for this.
    pub(super) released_parent: Completion<M>,
    /// Not 0: the parent waits until this child executes a program or exits.
    pub(super) is_vfork: Local32,
    /// What the task was started with.
    pub(super) start: Cell<Start>,
    /// The program whose files are mapped in the slot's address space. Used only by its owner.
    pub(super) mapped: Cell<Option<Executable>>,
}

impl<M: Machine> Process<M> {
    fn new() -> Self {
        Process {
            parent: LocalId::new(TaskId::NONE),
            children: Local32::new(0),
            dead_children: Shared32::new(TaskId::NONE.0),
            sibling: LocalId::new(TaskId::NONE),
            references: Shared32::new(0),
            child_exit: WaitQueue::new(),
            wants_child_signal: Local32::new(0),
            released_parent: Completion::new(),
            is_vfork: Local32::new(0),
            start: Cell::default(),
            mapped: Cell::default(),
        }
    }

    /// Initializes the slot of a new child of `parent`.
    pub(super) fn init(&self, parent: TaskId, start: Start) {
        self.start.set(start);
        self.parent.set(parent);
        self.references.set(2);
        self.children.set(0);
        self.dead_children.set(TaskId::NONE.0);
        self.wants_child_signal.set(0);
    }

    /// Wakes the parent if it waits since a vfork.
    pub(super) fn release_parent(&self, on: &OnCpu<'_, M>) {
        if self.is_vfork.is_set() {
            self.is_vfork.set(0);
            self.released_parent.complete(on);
        }
    }
}

impl<M: Machine> Processes<M> {
    /// Makes `tasks` slots, of which the first `cpus` are the idle tasks'. At most `limits.tasks` of the others may
    /// exist at a time. More slots are needed because a parent may have reaped a task from which its CPU has yet to
    /// switch away.
    pub(crate) fn new(cpus: u32, tasks: u32, limits: &Limits) -> Self {
        let room = limits.tasks.max(1);
        let slots: TaskTable<Process<M>> = TaskTable::new(tasks, |_| Process::new());
        for id in cpus + 1..tasks {
            slots[TaskId(id - 1)].sibling.set(TaskId(id));
        }
        let first = if tasks > cpus { TaskId(cpus) } else { TaskId::NONE };
        Processes {
            spaces: Spaces::new(tasks),
            files: FileSystem::new(limits, tasks),
            slots,
            list: RwLock::new(LockClass::TaskList, FreeSlots { first, room }),
        }
    }

    /// What task `id` was started with.
    pub(crate) fn start_of(&self, id: TaskId) -> Start {
        self.slots[id].start.get()
    }

    /// Takes a free slot for a child of `parent`. Stops the machine if there is none.
    pub(super) fn take_slot(&self, on: &OnCpu<'_, M>, parent: TaskId) -> TaskId {
        let mut list = self.list.write_irq(on);
        on.work(costs::TASK_LINK);
        let id = list.first;
        if id == TaskId::NONE || list.room == 0 {
            on.system.panic(format!(
                "fork: all task slots are taken; task {} wants one more",
                parent.0
            ));
        }
        list.room -= 1;
        list.first = self.slots[id].sibling.get();
        self.slots[parent].children.add(1);
        id
    }

    /// Releases the scheduler's or the parent's use of the dead task `id`, and frees the slot with the last use.
    pub(crate) fn put_task(&self, on: &OnCpu<'_, M>, id: TaskId) {
        if self.slots[id].references.decrement() == 0 {
            self.free_task(on, id);
        }
    }

    pub(super) fn free_task(&self, on: &OnCpu<'_, M>, id: TaskId) {
        on.sched.memory.give_pages(on, 2);
        on.sched.memory.slab(on, 4);
        let mut list = self.list.write_irq(on);
        self.slots[id].sibling.set(list.first);
        list.first = id;
    }

    /// From now on the death of a child interrupts the sleeps of the caller's task.
    pub(crate) fn want_child_signal(&self, on: &OnCpu<'_, M>) {
        self.slots[on.current()].wants_child_signal.set(1);
    }
}
