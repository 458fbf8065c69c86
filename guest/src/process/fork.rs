//! fork, and the first task.

use super::table::Processes;
use crate::class::Event;
use crate::costs;
use crate::cpu::idle_task;
use crate::ids::TaskId;
use crate::limits::Start;
use crate::machine::Machine;
use crate::measured::Step;
use crate::sched::{self, OnCpu, Scheduler};
use holdfast_locks::CpuId;

/// What the parent shares with a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// A copy: the parent continues at once, and memory is copied when either writes it.
    Copy {
        /// Mappings to copy.
        vmas: u32,
    },
    /// The parent's address space, until the child executes a program or exits. The parent waits (vfork).
    Borrow,
    /// The parent's address space permanently: a thread.
    Share,
}

impl<M: Machine> Processes<M> {
    /// Creates a task that runs the program with `start`.
    pub(crate) fn fork(&self, sched: &Scheduler<M>, how: Fork, start: Start) {
        let on = sched.on_cpu();
        on.local.count(Event::Forks);
        let parent = on.current();
        let id = self.take_slot(&on, parent);
        let child = &self.slots[id];
        self.prepare(&on, id, parent, start);
        if !on.measured(Step::FORK, |_| None) {
            on.work(if how == Fork::Borrow { costs::VFORK } else { costs::FORK });
        }
        sched.memory.slab(&on, 8);
        sched.memory.take_page(&on);
        sched.memory.take_page(&on);
        let space = match how {
            Fork::Copy { vmas } => {
                self.copy_space(sched, id, vmas);
                id
            }
            Fork::Borrow | Fork::Share => sched.tlbs.space_of(parent),
        };
        sched.tlbs.set_space(id, space);
        self.spaces.start(id, (how == Fork::Share).then_some(space));
        child.is_vfork.set(u32::from(how == Fork::Borrow));
        let on = sched.on_cpu();
        let target = sched::fork_cpu(&on);
        on.task(id).cpu.set(target);
        sched::start_task(&on, target, id);
        if how == Fork::Borrow {
            child.released_parent.wait(sched);
        }
    }

    /// Copies the address space of the caller's task to `child`, with the mappings of its files.
    fn copy_space(&self, sched: &Scheduler<M>, child: TaskId, vmas: u32) {
        let parent = sched.on_cpu().space();
        self.spaces.copy_space(sched, child, vmas);
        self.slots[child].mapped.set(self.slots[parent].mapped.get());
        self.map_files(sched, child);
    }

    fn prepare(&self, on: &OnCpu<'_, M>, id: TaskId, parent: TaskId, start: Start) {
        self.slots[id].init(parent, start);
        let task = on.task(id);
        task.signal_pending.set(0);
        task.accounted_at.set(0);
        task.ensure_context(|| on.system.machine.new_context(on.sched.hooks().body(id)));
    }

    /// Creates the first task. It is not forked, and its parent is the idle task of CPU 0.
    pub(crate) fn create_first(&self, on: &OnCpu<'_, M>) {
        let parent = idle_task(CpuId(0));
        let id = self.take_slot(on, parent);
        self.prepare(on, id, parent, Start::default());
        on.sched.tlbs.set_space(id, id);
        sched::start_task(on, on.id, id);
    }
}
