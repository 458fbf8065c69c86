//! exit and wait.

use alloc::format;

use super::{Exited, panic, release_parent};
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::task::{Task, TaskId, state};
use crate::{mm, time};

/// Ends the caller's task.
pub(super) fn exit<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.on_cpu();
    let id = on.current();
    let task = kernel.tasks.get(id);
    on.work(costs::EXIT);
    if task.children.get() != 0 {
        panic(
            kernel,
            format!("exit: task {} leaves {} children unreaped", id.0, task.children.get()),
        );
    }
    if task.space.get() == id.0 {
        mm::unmap_files(kernel, id);
        mm::release_space(kernel, id);
    }
    let on = kernel.on_cpu();
    release_parent(&on, task);
    {
        let _files = task.files_lock.lock(&on);
        on.work(costs::DESCRIPTOR);
        task.descriptors.set(0);
    }
    kernel.memory.slab(&on, 8);
    time::queue_callback(&on);
    notify_parent(&on, id, task);
    task.state.set(state::DEAD);
    sched::schedule(kernel);
    // Its slot has been given to a new task, which starts here.
}

fn notify_parent<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, task: &Task<M>) {
    let kernel = on.kernel;
    let parent_id = TaskId(task.parent.get());
    let parent = kernel.tasks.get(parent_id);
    let _list = kernel.task_list.lock_irq(on);
    on.work(costs::EXIT_NOTIFY);
    task.sibling.set(parent.dead_children.get());
    parent.dead_children.set(id.0);
    {
        let _signals = parent.signal_lock.lock(on);
        on.work(costs::SIGNAL);
        if parent.wants_child_signal.is_set() {
            parent.signal_pending.set(1);
            sched::wake(on, parent_id, state::INTERRUPTIBLE, WakeHint::Plain);
        }
        parent.child_exit.wake(on, u32::MAX, WakeHint::Sync);
    }
}

/// Waits until a child exits, and reaps it. `None`: there are no children, or none has exited yet and `may_sleep` is false.
pub(crate) fn wait<M: Machine>(kernel: &Kernel<M>, may_sleep: bool) -> Option<Exited> {
    loop {
        let on = kernel.on_cpu();
        let task = kernel.tasks.get(on.current());
        on.work(costs::WAIT);
        task.child_exit.prepare(&on, state::INTERRUPTIBLE);
        task.signal_pending.set(0);
        if task.dead_children.get() != TaskId::NONE.0 {
            task.child_exit.finish(&on);
            return Some(reap(&on, task));
        }
        if task.children.get() == 0 || !may_sleep {
            task.child_exit.finish(&on);
            return None;
        }
        sched::schedule(kernel);
        let on = kernel.on_cpu();
        task.child_exit.finish(&on);
    }
}

fn reap<M: Machine>(on: &OnCpu<'_, M>, parent: &Task<M>) -> Exited {
    let kernel = on.kernel;
    let (exited, is_last) = {
        let _list = kernel.task_list.lock_irq(on);
        on.work(costs::REAP);
        let id = TaskId(parent.dead_children.get());
        let child = kernel.tasks.get(id);
        parent.dead_children.set(child.sibling.get());
        parent.children.sub(1);
        kernel.tasks.reaped();
        let _signals = child.signal_lock.lock(on);
        on.work(costs::SIGNAL);
        let exited = Exited {
            task: id,
            start: child.start(),
        };
        (exited, child.references.decrement() == 0)
    };
    if is_last {
        free_task(on, exited.task);
    }
    exited
}

/// The scheduler needs the dead task `id` no more.
pub(crate) fn put_task<M: Machine>(on: &OnCpu<'_, M>, id: TaskId) {
    if on.kernel.tasks.get(id).references.decrement() == 0 {
        free_task(on, id);
    }
}

fn free_task<M: Machine>(on: &OnCpu<'_, M>, id: TaskId) {
    let kernel = on.kernel;
    kernel.memory.give_pages(on, 2);
    kernel.memory.slab(on, 4);
    let _list = kernel.task_list.lock_irq(on);
    kernel.tasks.give_slot(id);
}
