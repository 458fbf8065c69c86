//! Processes: fork, exec, exit, wait.

use crate::class::Event;
use crate::costs;
use crate::fs::{self, FileId};
use crate::handle::KernelRef;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::{Cpu, Machine, Mode, Report};
use crate::os::Os;
use crate::program::Start;
use crate::sched::{self, WakeHint};
use crate::task::{Task, TaskId, state};
use crate::{mm, time};
use alloc::boxed::Box;
use alloc::format;

/// What the parent shares with a new process until that executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// A copy: the parent goes on at once, both with memory that is copied when written.
    Copy {
        /// Mappings to copy.
        vmas: u32,
    },
    /// The parent's address space itself; the parent waits until the child executes or exits (vfork).
    Borrow,
    /// The parent's address space for good: a thread.
    Share,
}

/// A program to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// The file.
    pub file: FileId,
    /// The first shared library's file; the others follow.
    pub library_first: FileId,
    /// How many libraries.
    pub libraries: u32,
    /// Pages touched by exec itself: arguments, stack, bss.
    pub pages: u32,
}

/// A child that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Its task.
    pub task: TaskId,
    /// What it was started with.
    pub start: Start,
}

/// Stops the machine with a message.
pub(crate) fn panic<M: Machine>(kernel: &Kernel<M>, message: alloc::string::String) -> ! {
    kernel.machine.report(Report::Panic(message));
    let on = kernel.on_cpu();
    on.cpu.irq_disable();
    loop {
        holdfast_locks::Paravirt::halt_masked(&on.cpu);
    }
}

/// Creates a task that runs the program with `start`.
pub(crate) fn fork<M: Machine>(kernel: &Kernel<M>, how: Fork, start: Start) -> TaskId {
    let on = kernel.on_cpu();
    on.local.count(Event::Forks);
    let parent = on.current();
    let id = take_slot(&on, parent);
    let child = kernel.tasks.get(id);
    prepare(kernel, child, id, parent, start);
    on.work(if how == Fork::Borrow { costs::VFORK } else { costs::FORK });
    kernel.memory.slab(&on, 8);
    kernel.memory.take_page(&on);
    kernel.memory.take_page(&on);
    if let Fork::Copy { vmas } = how {
        mm::copy_space(kernel, id, vmas);
        child.space.set(id.0);
    } else {
        child.space.set(kernel.tasks.get(parent).space.get());
    }
    child.is_vfork.set(u32::from(how == Fork::Borrow));
    child.descriptors.set(kernel.tasks.get(parent).descriptors.get());
    let on = kernel.on_cpu();
    let target = sched::fork_cpu(&on);
    child.cpu.set(target);
    sched::start_task(&on, target, id);
    if how == Fork::Borrow {
        child.released_parent.wait(kernel);
    }
    id
}

fn take_slot<M: Machine>(on: &OnCpu<'_, M>, parent: TaskId) -> TaskId {
    let _list = on.kernel.task_list.lock_irq(on);
    on.work(costs::TASK_LINK);
    let Some(id) = on.kernel.tasks.take_slot() else {
        panic(
            on.kernel,
            format!("fork: all task slots are taken; task {} wants one more", parent.0),
        );
    };
    on.kernel.tasks.get(parent).children.add(1);
    id
}

fn prepare<M: Machine>(kernel: &Kernel<M>, child: &Task<M>, id: TaskId, parent: TaskId, start: Start) {
    child.set_start(start);
    child.parent.set(parent.0);
    child.references.set(2);
    child.children.set(0);
    child.dead_children.set(TaskId::NONE.0);
    child.wants_child_signal.set(0);
    child.signal_pending.set(0);
    child.accounted_at.set(0);
    let handle = kernel.handle();
    child.ensure_context(|| kernel.machine.new_context(Box::new(move || task_main(handle, id))));
}

/// The body of every context: one task after another of the slot `id`.
fn task_main<M: Machine>(kernel: KernelRef<M>, id: TaskId) {
    let os = Os::new(kernel);
    sched::finish(&kernel);
    loop {
        kernel.program.run(&os, kernel.tasks.get(id).start());
        exit(&kernel);
    }
}

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
    mm::map_pages(&kernel.on_cpu(), executable.pages);
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

fn release_parent<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) {
    if task.is_vfork.is_set() {
        task.is_vfork.set(0);
        task.released_parent.complete(on);
    }
}

/// Ends the caller's task.
fn exit<M: Machine>(kernel: &Kernel<M>) {
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

/// Says that a child's death shall interrupt the caller's sleeps.
pub(crate) fn want_child_signal<M: Machine>(on: &OnCpu<'_, M>) {
    on.kernel.tasks.get(on.current()).wants_child_signal.set(1);
}

/// Back from an interrupted system call: the signal handler has run. Whether there was a signal.
pub(crate) fn take_signal<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let task = on.kernel.tasks.get(on.current());
    if task.signal_pending.get() == 0 {
        return false;
    }
    task.signal_pending.set(0);
    let _signals = task.signal_lock.lock_irq(on);
    on.work(costs::SIGNAL);
    true
}

/// User mode is entered again after a system call or a fault: the scheduler's chance. The caller may be on another CPU
/// afterwards.
pub(crate) fn enter_user<M: Machine>(kernel: &Kernel<M>) {
    sched::cond_resched(kernel);
    kernel.on_cpu().execute(Mode::User);
}

/// The first task: not forked, its parent is the idle task of CPU 0.
pub(crate) fn create_first<M: Machine>(on: &OnCpu<'_, M>) {
    let kernel = on.kernel;
    let id = take_slot(on, kernel.tasks.idle_of(0));
    let task = kernel.tasks.get(id);
    prepare(kernel, task, id, kernel.tasks.idle_of(0), Start::default());
    task.space.set(id.0);
    sched::start_task(on, on.index, id);
}
