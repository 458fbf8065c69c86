//! Leaving `KVM_RUN` and entering it again: which thread belongs to a vCPU (docs/spec/host.md, "Load and put" and
//! "Threads of vCPUs").
//!
//! - **One writer**: only entering `KVM_RUN` sets the thread of a vCPU.
//! - **Threads end**: a lookup of a vCPU's thread finds it or nothing, never a later thread with the same number.
//!
//! On a real host, a reader that finds the lock of the pointer taken also treats that as "no thread". Steps are not
//! concurrent: here the lock is always free.

use crate::boundary::{Cost, TaskId, VcpuId, VcpuState};
use crate::step::Step;
use crate::threads::ThreadKind;
use crate::vcpu::Pid;
use crate::vcpu::load;
use crate::wings::Wings;

/// The thread of `vcpu` returns from `KVM_RUN`. From here on the thread can be preempted without counting as a
/// preempted vCPU.
pub(crate) fn leave_run(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::UserspaceExit, 1);
    step.charge(Cost::VcpuLoad, 1);
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.userspace_exits += 1;
    at.set_state(VcpuState::Userspace, step);
    let task = at.thread.task;
    on.threads.records[task].kind = ThreadKind::Plain;
    on.put(vcpu, false);
    if on.guests.reports_all_leaves {
        on.guests.report_preempted(vcpu, step);
    }
}

/// `task`, which runs on the executing pCPU, enters `KVM_RUN` for `vcpu`.
///
/// # Panics
/// If `task` is a vCPU's thread or voluntary, or `vcpu` is in `KVM_RUN` already or dead.
pub(crate) fn enter_run(on: &mut Wings, task: TaskId, vcpu: VcpuId, step: &mut Step<'_>) {
    assert_eq!(
        on.threads.records[task].kind,
        ThreadKind::Plain,
        "task {} runs vcpu {}",
        task.0,
        vcpu.0
    );
    let generation = on.threads.records[task].generation;
    let at = &mut on.guests.vcpus[vcpu];
    assert_eq!(at.state, VcpuState::Userspace, "vcpu {} has a thread", vcpu.0);
    let pid = Pid { task, generation };
    if at.thread.pid != pid {
        at.thread.pid = pid;
        at.thread.task = task;
        at.counters.thread_changes += 1;
        // Earlier waits of that thread are not the guest's.
        at.steal.seen_ns = on.threads.sched.run_delay(task);
    }
    on.threads.records[task].kind = ThreadKind::Vcpu(vcpu);
    load::load(on, vcpu, step);
}

/// Returns the thread of `vcpu`, or `None` if it has ended.
pub(crate) fn thread_of(on: &Wings, vcpu: VcpuId) -> Option<TaskId> {
    let pid = on.guests.vcpus[vcpu].thread.pid;
    (on.threads.records[pid.task].generation == pid.generation).then_some(pid.task)
}
