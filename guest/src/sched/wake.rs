//! Waking tasks (`try_to_wake_up`).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use holdfast_locks::{Budget, Platform};

use crate::apic;
use crate::class::Event;
use crate::costs;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::Machine;
use crate::sched::{LATENCY, RunQueue, WAKEUP_GRANULARITY, ask_to_reschedule, place, scale, slice, switch::end_idle};
use crate::task::{Task, TaskId, state};

/// What the waker will do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeHint {
    /// Nothing in particular.
    Plain,
    /// Sleep soon (`WF_SYNC`): the woken task may as well have this CPU.
    Sync,
}

/// As [`wake`](super::wake), by this kernel's own run queues.
pub(super) fn wake<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, mask: u32, hint: WakeHint) -> bool {
    let task = on.kernel.tasks.get(id);
    let _serialised = task.wake_lock.lock_irq(on);
    if task.state.get() & mask == 0 {
        return false;
    }
    if on.kernel.config.ttwu_queue {
        on.work(costs::WAKE);
    } else {
        // Before 3.0 the lock of the run queue that it left serialises its wake-ups, and the choice of the next.
        let _left = on.kernel.cpus[task.cpu.get() as usize].run_queue.lock(on);
        on.work(costs::WAKE);
    }
    on.local.count(Event::Wakeups);
    if task.queued.get() != 0 && wake_before_sleep(on, task) {
        return true;
    }
    // It may still be on its way off another CPU, which uses its stack until then.
    // ORDERING: Acquire pairs with the Release in `switch::finish`.
    let off = on
        .cpu
        .wait_until(&task.on_cpu, Budget::UNBOUNDED, Acquire, |running| running == 0);
    assert!(off.is_ok(), "an unbounded wait gave up");
    task.state.set(state::WAKING);
    let target = place::wake_cpu(on, id, hint);
    let from = &on.kernel.cpus[task.cpu.get() as usize];
    task.vruntime
        .set(task.vruntime.get().wrapping_sub(from.min_vruntime.get()));
    if task.cpu.get() != target {
        on.local.count(Event::Migrations);
    }
    task.cpu.set(target);
    if !on.kernel.config.ttwu_queue || on.kernel.share_cache(on.index, target) {
        activate_woken(on, target, id);
    } else {
        hand_over(on, target, id, task);
    }
    true
}

/// The task has said that it sleeps but has not called the scheduler yet: only takes its word back.
fn wake_before_sleep<M: Machine>(on: &OnCpu<'_, M>, task: &Task<M>) -> bool {
    let cpu = task.cpu.get();
    let mut queue = on.kernel.cpus[cpu as usize].run_queue.lock(on);
    if task.queued.get() == 0 {
        return false;
    }
    task.state.set(state::RUNNING);
    check_preemption(on, cpu, &mut queue, task);
    true
}

/// Puts a woken task on `target`'s run queue.
fn activate_woken<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, id: TaskId) {
    let mut queue = on.kernel.cpus[target as usize].run_queue.lock(on);
    activate_locked(on, target, &mut queue, id);
}

fn activate_locked<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, queue: &mut RunQueue, id: TaskId) {
    let task = on.kernel.tasks.get(id);
    on.work(costs::ENQUEUE);
    let now = on.now();
    end_idle(queue, now);
    queue.account(on.kernel, &on.kernel.cpus[target as usize], now);
    // A sleeper gets credit for half a latency, no more (`GENTLE_FAIR_SLEEPERS`).
    let credit = LATENCY * scale(on.kernel.cpus.len()) / 2;
    let least = queue.min_vruntime.saturating_sub(credit);
    let vruntime = task.vruntime.get().wrapping_add(queue.min_vruntime);
    // The difference may have been negative: then the sum wrapped back to a small value, or stayed huge.
    let vruntime = if vruntime > i64::MAX as u64 { 0 } else { vruntime };
    task.vruntime.set(vruntime.max(least));
    queue.enqueue(on, target, id, task);
    task.state.set(state::RUNNING);
    check_preemption(on, target, queue, task);
}

/// Pushes a task on `target`'s wake list (`ttwu_queue_remote`): `target` itself puts it on its run queue.
fn hand_over<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, id: TaskId, task: &Task<M>) {
    let list = &on.kernel.cpus[target as usize].wake_list;
    let mut head = on.cpu.load(list, Relaxed);
    loop {
        task.wake_next.set(head);
        // ORDERING: the Release part pairs with the Acquire of the swap in `reschedule_ipi`: the link is seen.
        match on.cpu.compare_exchange(list, head, id.0 + 1, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(found) => head = found,
        }
    }
    if head == 0 {
        on.local.count(Event::RescheduleIpis);
        apic::send(on, target, apic::RESCHEDULE_VECTOR);
    }
}

/// The reschedule IPI's handler: takes in what other CPUs have woken for this one.
pub(crate) fn reschedule_ipi<M: Machine>(on: &OnCpu<'_, M>) {
    // ORDERING: Acquire pairs with the Release in `hand_over`.
    if on.cpu.load(&on.local.wake_list, Relaxed) == 0 {
        return;
    }
    let mut link = on.cpu.swap(&on.local.wake_list, 0, Acquire);
    let mut queue = on.local.run_queue.lock_irq(on);
    while link != 0 {
        let id = TaskId(link - 1);
        link = on.kernel.tasks.get(id).wake_next.get();
        activate_locked(on, on.index, &mut queue, id);
    }
}

/// Preempts what runs on `cpu` if `woken` deserves the CPU more (`check_preempt_wakeup`).
fn check_preemption<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuIndex, queue: &mut RunQueue, woken: &Task<M>) {
    if queue.is_idle() {
        ask_to_reschedule(on, cpu);
        return;
    }
    let running = on.kernel.tasks.get(queue.current);
    let ahead = running.vruntime.get().saturating_sub(woken.vruntime.get());
    if ahead > WAKEUP_GRANULARITY * scale(on.kernel.cpus.len()) {
        ask_to_reschedule(on, cpu);
    }
}

/// Makes a new task ready to run on `target` (`wake_up_new_task`): in debt of a slice, so that forking gains nothing.
pub(super) fn start_task<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, id: TaskId) {
    let task = on.kernel.tasks.get(id);
    let _serialised = task.wake_lock.lock_irq(on);
    let mut queue = on.kernel.cpus[target as usize].run_queue.lock(on);
    on.work(costs::ENQUEUE);
    let now = on.now();
    end_idle(&mut queue, now);
    queue.account(on.kernel, &on.kernel.cpus[target as usize], now);
    task.vruntime
        .set(queue.min_vruntime + slice(on.kernel.cpus.len(), queue.load + 1));
    task.state.set(state::RUNNING);
    queue.enqueue(on, target, id, task);
    check_preemption(on, target, &mut queue, task);
}

/// Puts a task that was taken off its CPU, and sleeps nowhere, on `target`.
pub(super) fn put_on<M: Machine>(on: &OnCpu<'_, M>, id: TaskId, target: CpuIndex) {
    let task = on.kernel.tasks.get(id);
    let _serialised = task.wake_lock.lock_irq(on);
    let from = &on.kernel.cpus[task.cpu.get() as usize];
    task.vruntime
        .set(task.vruntime.get().wrapping_sub(from.min_vruntime.get()));
    task.cpu.set(target);
    on.local.count(Event::Migrations);
    activate_woken(on, target, id);
}
