//! exit and wait.

use alloc::format;

use super::table::Processes;
use crate::costs;
use crate::ids::TaskId;
use crate::limits::Start;
use crate::machine::Machine;
use crate::measured::Step;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::task::state;
use crate::time::queue_callback;

/// A child that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// The child's task.
    pub task: TaskId,
    /// What the child was started with.
    pub start: Start,
}

impl<M: Machine> Processes<M> {
    /// Ends the caller's task. Returns in the next task of the same slot.
    pub(crate) fn exit(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let id = on.current();
        let process = &self.slots[id];
        let is_measured = on.measured(Step::EXIT, |_| None);
        if !is_measured {
            on.work(costs::EXIT);
        }
        let children = process.children.get();
        if children != 0 {
            on.system
                .panic(format!("exit: task {} leaves {children} children unreaped", id.0));
        }
        if sched.tlbs.space_of(id) == id {
            self.unmap_files(sched, id);
            self.spaces.release_space(sched, id);
        }
        let on = sched.on_cpu();
        process.release_parent(&on);
        if !is_measured {
            self.files.change_descriptors(&on);
        }
        sched.memory.slab(&on, 8);
        queue_callback(&on);
        self.notify_parent(&on, id);
        on.task(id).state.set(state::DEAD);
        sched::schedule(sched);
        // The slot was given to a new task, which starts here.
    }

    fn notify_parent(&self, on: &OnCpu<'_, M>, id: TaskId) {
        let process = &self.slots[id];
        let parent_id = process.parent.get();
        let (parent, parent_task) = (&self.slots[parent_id], on.task(parent_id));
        let _list = self.list.write_irq(on);
        on.work(costs::EXIT_NOTIFY);
        process.sibling.set(TaskId(parent.dead_children.get()));
        parent.dead_children.set(id.0);
        {
            let _signals = parent_task.signal_lock.lock(on);
            on.work(costs::SIGNAL);
            if parent.wants_child_signal.is_set() {
                parent_task.signal_pending.set(1);
                sched::wake(on, parent_id, state::INTERRUPTIBLE, WakeHint::Plain);
            }
            parent.child_exit.wake(on, u32::MAX, WakeHint::Sync);
        }
    }

    /// Waits until a child exits, and reaps it. Returns `None` if there are no children, or if none has exited yet and
    /// `may_sleep` is `false`.
    pub(crate) fn wait(&self, sched: &Scheduler<M>, may_sleep: bool) -> Option<Exited> {
        loop {
            let on = sched.on_cpu();
            let process = &self.slots[on.current()];
            if !sched.measured.is_on() {
                on.work(costs::WAIT);
            }
            process.child_exit.prepare(&on, state::INTERRUPTIBLE);
            on.current_task().signal_pending.set(0);
            let has_dead_child = {
                let _list = self.list.read(&on);
                process.dead_children.get() != TaskId::NONE.0
            };
            if has_dead_child {
                process.child_exit.finish(&on);
                return Some(self.reap(&on));
            }
            if process.children.get() == 0 || !may_sleep {
                process.child_exit.finish(&on);
                return None;
            }
            sched::schedule(sched);
            let on = sched.on_cpu();
            process.child_exit.finish(&on);
        }
    }

    /// Reaps the first dead child of the caller's task.
    fn reap(&self, on: &OnCpu<'_, M>) -> Exited {
        on.measured(Step::REAP, |_| None);
        let parent = &self.slots[on.current()];
        let (exited, is_last) = {
            let mut list = self.list.write_irq(on);
            on.work(costs::REAP);
            let id = TaskId(parent.dead_children.get());
            let child = &self.slots[id];
            parent.dead_children.set(child.sibling.get().0);
            parent.children.sub(1);
            list.room += 1;
            let _signals = on.task(id).signal_lock.lock(on);
            on.work(costs::SIGNAL);
            let exited = Exited {
                task: id,
                start: child.start.get(),
            };
            (exited, child.references.decrement() == 0)
        };
        if is_last {
            self.free_task(on, exited.task);
        }
        exited
    }
}
