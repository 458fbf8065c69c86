//! exec.

use super::{Executable, release_parent};
use crate::class::Event;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::task::{Task, TaskId};
use crate::{costs, fs, mm, sched};

/// Makes the caller's task execute another program: tears down or gives back its address space, and maps a new one.
pub(crate) fn exec<M: Machine>(kernel: &Kernel<M>, executable: &Executable) {
    sched::move_for_exec(kernel);
    let on = kernel.on_cpu();
    on.local.count(Event::Execs);
    let id = on.current();
    let task = kernel.tasks.get(id);
    fs::open_for_exec(&on, executable.file);
    on.work(costs::EXEC);
    kernel.memory.slab(&on, 12);
    leave_space(kernel, id, task);
    task.own_space.set_files(executable);
    mm::map_files(kernel, id);
    mm::map_pages(kernel, executable.pages);
}

/// Ends the task's use of its old address space and starts its own.
fn leave_space<M: Machine>(kernel: &Kernel<M>, id: TaskId, task: &Task<M>) {
    if task.space.get() == id.0 {
        mm::unmap_files(kernel, id);
        mm::release_space(kernel, id);
        return;
    }
    task.space.set(id.0);
    let on = kernel.on_cpu();
    mm::load_space(&on, id);
    release_parent(&on, task);
}
