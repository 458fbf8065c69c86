//! Processes: fork, exec, exit, wait.

mod exec;
mod exit;

pub(crate) use exec::exec;
pub(crate) use exit::{put_task, wait};

use alloc::boxed::Box;
use alloc::format;

use crate::class::Event;
use crate::costs;
use crate::fs::FileId;
use crate::handle::KernelRef;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::{Cpu, Machine, Mode, Report};
use crate::os::Os;
use crate::program::Start;
use crate::task::{Task, TaskId};
use crate::{mm, sched};

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
    child.thread.set(if how == Fork::Share {
        mm::add_thread(kernel, id)
    } else {
        0
    });
    child.mapped_pages.set(0);
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
    sched::finish(&kernel, id);
    loop {
        kernel.program.run(&os, kernel.tasks.get(id).start());
        exit::exit(&kernel);
    }
}

/// Wakes the parent that waits since a vfork.
fn release_parent<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) {
    if task.is_vfork.is_set() {
        task.is_vfork.set(0);
        task.released_parent.complete(on);
    }
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
