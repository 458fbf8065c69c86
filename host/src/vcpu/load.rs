//! A vCPU's thread takes a pCPU and gives it up (`kvm_arch_vcpu_load`, `kvm_arch_vcpu_put`).

use super::Activity;
use crate::boundary::{Cost, VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;
use crate::wings::Wings;

/// `vcpu` takes the executing pCPU: its thread was switched to, or enters `KVM_RUN`.
pub(crate) fn load(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::VcpuLoad, 1);
    let at = &mut on.guests.vcpus[vcpu];
    at.thread.preempted = false;
    at.thread.ready = false;
    at.thread.between_instructions = false;
    at.requests.steal_update = true;
    at.thread.cpu = Some(step.pcpu);
    on.load(vcpu, step.pcpu);
    let at = &mut on.guests.vcpus[vcpu];
    at.set_state(VcpuState::HandlingExit, step);
    let task = at.thread.timer;
    // A LAPIC timer expires on the pCPU where its vCPU runs, so it moves with the vCPU.
    if let Some((pcpu, deadline)) = on.threads.timers.armed(Timer::Lapic(task))
        && pcpu != step.pcpu
    {
        on.threads.timers.arm(Timer::Lapic(task), step.pcpu, deadline);
    }
}

/// The thread of `vcpu` gives up the executing pCPU (preempt notifier `sched_out`).
pub(crate) fn put(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::VcpuLoad, 1);
    let all = on.guests.reports_all_leaves;
    let between = on.guests.vcpus[vcpu].thread.between_instructions;
    let reports = on.guests.reports_preemption(vcpu) && (all || between);
    let task = on.guests.vcpus[vcpu].thread.task;
    let sched = &on.threads.sched;
    let (runnable, throttled) = (sched.is_runnable(task), sched.is_throttled(task));
    on.put(vcpu, runnable);
    let at = &mut on.guests.vcpus[vcpu];
    if runnable {
        at.thread.preempted = true;
        at.thread.ready = true;
        at.thread.preempted_in_kernel = at.guest.cpl == 0;
        if reports {
            at.counters.preemption_reported += 1;
        } else {
            at.counters.preemption_other += 1;
        }
        let waits = if throttled {
            VcpuState::Throttled
        } else {
            VcpuState::Preempted
        };
        at.set_state(waits, step);
    }
    if at.activity != Activity::Dead && (all || runnable && between) {
        on.guests.report_preempted(vcpu, step);
    }
}
