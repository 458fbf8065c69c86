//! Tasks as threads of the scheduler beneath: a kernel on the machine itself, beside virtual machines.
//!
//! **No lost wake-up**: a task decides under its own lock whether it still wants to sleep, and a waker decides under that
//! lock whether to wake its thread; the thread may then be woken before it sleeps, which the scheduler beneath keeps.
//! **A CPU's data are its running task's**: a task that leaves a CPU says so there, and says where it is when it is back.

use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_locks::Platform;

use crate::class::Event;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::{Cpu, Machine, Mode, Threads};
use crate::task::{Task, TaskId, state};

/// The scheduler beneath, for tasks of `M`.
type Beneath<'a, M> = &'a dyn Threads<<M as Machine>::Context>;

/// The thread of task `id`: idle tasks have none.
fn thread<M: Machine>(kernel: &Kernel<M>, id: TaskId) -> u32 {
    id.0 - kernel.cpus.len() as u32
}

/// As [`schedule`](super::schedule).
pub(super) fn schedule<M: Machine>(kernel: &Kernel<M>, threads: Beneath<'_, M>) {
    let on = kernel.on_cpu();
    on.cpu.irq_disable();
    let id = on.current();
    let task = kernel.tasks.get(id);
    on.work(costs::PICK);
    let sleeps = says_that_it_sleeps(&on, task);
    if sleeps == state::DEAD {
        // Its slot may be given away from here on: a new life begins where this one ends.
        crate::process::put_task(&on, id);
    }
    leave(&on, task);
    match sleeps {
        state::RUNNING => threads.yield_cpu(),
        state::DEAD => threads.end(),
        _ => threads.sleep(None),
    }
    arrive(kernel, id);
}

/// What the task that calls the scheduler wants; from here on, who ends its sleep wakes its thread.
fn says_that_it_sleeps<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) -> u32 {
    let _serialised = task.wake_lock.lock_irq(on);
    let sleeps = task.state.get();
    if sleeps & state::INTERRUPTIBLE != 0 && task.signal_pending.get() != 0 {
        task.state.set(state::RUNNING);
        return state::RUNNING;
    }
    if sleeps == state::RUNNING {
        on.local.count(Event::Preemptions);
    } else {
        task.queued.set(0);
    }
    sleeps
}

/// The running task is about to lose its CPU. Interrupts are masked.
fn leave<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) {
    // What it has loaded stays loaded until somebody else's tables are needed, or must not be wrong any more.
    on.local.lazy_space.set(1);
    // ORDERING: Release, for whoever concludes from 0 that the task does not run; spinners on a mutex do, as a hint.
    on.cpu.store(&task.on_cpu, 0, Release);
    on.execute(Mode::Idle);
}

/// Task `id` has a CPU, maybe another one than before. Enables interrupts.
pub(super) fn arrive<M: Machine>(kernel: &Kernel<M>, id: TaskId) {
    let on = kernel.on_cpu();
    let task = kernel.tasks.get(id);
    on.execute(Mode::Kernel);
    let switched = on.current() != id;
    if task.cpu.get() != on.index {
        task.cpu.set(on.index);
        on.local.count(Event::Migrations);
    }
    on.local.current.set(id.0);
    // ORDERING: Relaxed: a hint.
    on.cpu.store(&task.on_cpu, 1, Relaxed);
    if switched {
        on.local.count(Event::ContextSwitches);
        on.work(costs::SWITCH);
    }
    crate::mm::switch_space(&on, id);
    on.cpu.irq_enable();
    if switched {
        on.work(costs::SWITCH_AFTER);
    }
}

/// As [`wake`](super::wake).
pub(super) fn wake<M: Machine>(on: &OnCpu<'_, M>, threads: Beneath<'_, M>, id: TaskId, mask: u32) -> bool {
    let task = on.kernel.tasks.get(id);
    let _serialised = task.wake_lock.lock_irq(on);
    if task.state.get() & mask == 0 {
        return false;
    }
    on.work(costs::WAKE);
    on.local.count(Event::Wakeups);
    task.state.set(state::RUNNING);
    if task.queued.get() == 0 {
        task.queued.set(1);
        on.work(costs::ENQUEUE);
        threads.wake(thread(on.kernel, id));
    }
    true
}

/// As [`start_task`](super::start_task): the scheduler beneath has the choice.
pub(super) fn start<M: Machine>(on: &OnCpu<'_, M>, threads: Beneath<'_, M>, id: TaskId) {
    let task = on.kernel.tasks.get(id);
    let _serialised = task.wake_lock.lock_irq(on);
    task.state.set(state::RUNNING);
    task.queued.set(1);
    on.work(costs::ENQUEUE);
    threads.start(thread(on.kernel, id), task.context());
}

/// As [`move_for_exec`](super::move_for_exec).
pub(super) fn execute<M: Machine>(kernel: &Kernel<M>, threads: Beneath<'_, M>) {
    away(kernel, || threads.execute());
}

/// The caller's task sleeps until `at` nanoseconds. Nobody else knows that it does, so nobody else wakes it.
pub(crate) fn sleep<M: Machine>(kernel: &Kernel<M>, threads: Beneath<'_, M>, at: u64) {
    kernel.on_cpu().work(costs::TIMER);
    away(kernel, || threads.sleep(Some(at)));
}

/// `call`, in which the caller's task may lose its CPU.
fn away<M: Machine>(kernel: &Kernel<M>, call: impl FnOnce()) {
    let on = kernel.on_cpu();
    on.cpu.irq_disable();
    let id = on.current();
    on.work(costs::PICK);
    leave(&on, kernel.tasks.get(id));
    call();
    arrive(kernel, id);
}
