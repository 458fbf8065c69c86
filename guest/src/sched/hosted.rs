//! Tasks as threads of the host's scheduler: a kernel on the machine itself, next to virtual machines.
//!
//! **No lost wakeup**: a task decides under its own lock whether it still wants to sleep, and a waker decides under
//! that lock whether to wake its thread. The thread may then be woken before it sleeps; the host's scheduler remembers
//! that. **A CPU's state is its running task's**: a task that leaves a CPU notes that there, and notes its CPU when it
//! is back.

use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_locks::Platform;

use super::scheduler::{OnCpu, Scheduler};
use crate::class::Event;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::{Cpu, Machine, Mode, Threads};
use crate::task::{Task, state};

/// The host's scheduler, for tasks of `M`.
type HostThreads<'a, M> = &'a dyn Threads<<M as Machine>::Context>;

/// The thread of task `id`. Idle tasks have none.
fn thread<M: Machine>(sched: &Scheduler<M>, id: TaskId) -> u32 {
    id.0 - sched.system.cpu_count()
}

/// [`schedule`](super::schedule) for tasks that are threads of the host.
pub(super) fn schedule<M: Machine>(sched: &Scheduler<M>, threads: HostThreads<'_, M>) {
    let on = sched.on_cpu();
    on.cpu.irq_disable();
    let id = on.current();
    let task = sched.task(id);
    on.work(costs::PICK);
    let sleeps = decide_to_sleep(&on, task);
    if sleeps == state::DEAD {
        // The slot may be reused from here on: its next task begins where this one ends.
        sched.hooks().left_dead(&on, id);
    }
    leave(&on, task);
    match sleeps {
        state::RUNNING => threads.yield_cpu(),
        state::DEAD => threads.end(),
        _ => threads.sleep(None),
    }
    arrive(sched, id);
}

/// Returns the state in which the caller's task leaves the CPU. From here on, a waker must wake its thread.
fn decide_to_sleep<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) -> u32 {
    let _serialized = task.wake_lock.lock_irq(on);
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
    on.sched.tlbs.enter_lazy(on.id);
    // ORDERING: Release, for a reader that concludes from 0 that the task does not run. Spinners for a mutex do, as a
    // hint.
    on.cpu.store(&task.on_cpu, 0, Release);
    on.execute(Mode::Idle);
}

/// Notes that task `id` has a CPU again, maybe another one than before. Enables interrupts.
pub(super) fn arrive<M: Machine>(sched: &Scheduler<M>, id: TaskId) {
    let on = sched.on_cpu();
    let task = sched.task(id);
    on.execute(Mode::Kernel);
    let switched = on.current() != id;
    if task.cpu.get() != on.id {
        task.cpu.set(on.id);
        on.local.count(Event::Migrations);
    }
    on.local.current.set(id);
    // ORDERING: Relaxed: a hint.
    on.cpu.store(&task.on_cpu, 1, Relaxed);
    if switched {
        on.local.count(Event::ContextSwitches);
        on.work(costs::SWITCH);
    }
    sched.tlbs.switch_to(&on, id);
    on.cpu.irq_enable();
    if switched {
        on.work(costs::SWITCH_AFTER);
    }
}

/// [`wake`](super::wake) for tasks that are threads of the host.
pub(super) fn wake<M: Machine>(on: &OnCpu<'_, M>, threads: HostThreads<'_, M>, id: TaskId, mask: u32) -> bool {
    let task = on.task(id);
    let _serialized = task.wake_lock.lock_irq(on);
    if task.state.get() & mask == 0 {
        return false;
    }
    on.work(costs::WAKE);
    on.local.count(Event::Wakeups);
    task.state.set(state::RUNNING);
    if task.queued.get() == 0 {
        task.queued.set(1);
        on.work(costs::ENQUEUE);
        threads.wake(thread(on.sched, id));
    }
    true
}

/// [`start_task`](super::start_task) for tasks that are threads of the host, whose scheduler chooses the CPU.
pub(super) fn start<M: Machine>(on: &OnCpu<'_, M>, threads: HostThreads<'_, M>, id: TaskId) {
    let task = on.task(id);
    let _serialized = task.wake_lock.lock_irq(on);
    task.state.set(state::RUNNING);
    task.queued.set(1);
    on.work(costs::ENQUEUE);
    threads.start(thread(on.sched, id), task.context());
}

/// [`move_for_exec`](super::move_for_exec) for tasks that are threads of the host.
pub(super) fn execute<M: Machine>(sched: &Scheduler<M>, threads: HostThreads<'_, M>) {
    without_cpu(sched, || threads.execute());
}

/// Puts the caller's task to sleep until `at` nanoseconds. Its state stays running, so no other task wakes it.
pub(crate) fn sleep<M: Machine>(sched: &Scheduler<M>, threads: HostThreads<'_, M>, at: u64) {
    sched.on_cpu().work(costs::TIMER);
    without_cpu(sched, || threads.sleep(Some(at)));
}

/// Makes `call`, in which the caller's task may lose its CPU.
fn without_cpu<M: Machine>(sched: &Scheduler<M>, call: impl FnOnce()) {
    let on = sched.on_cpu();
    on.cpu.irq_disable();
    let id = on.current();
    on.work(costs::PICK);
    leave(&on, sched.task(id));
    call();
    arrive(sched, id);
}
