//! A vCPU's thread takes a pCPU and gives it up (`kvm_arch_vcpu_load`, `kvm_arch_vcpu_put`).

use super::Activity;
use super::wing::VcpuWing;
use crate::boundary::{Cost, VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;

impl VcpuWing {
    /// `vcpu` takes the executing pCPU: its thread was switched to, or enters `KVM_RUN`.
    pub(crate) fn load(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::VcpuLoad, 1);
        let at = &mut self.guests.vcpus[vcpu];
        at.preempted = false;
        at.ready = false;
        at.requests.steal_update = true;
        at.cpu = Some(step.pcpu);
        self.interrupts.load(vcpu, step.pcpu);
        let at = &mut self.guests.vcpus[vcpu];
        at.set_state(VcpuState::HandlingExit, step);
        let task = at.timer;
        // A LAPIC timer expires on the pCPU where its vCPU runs, so it moves with the vCPU.
        if let Some((pcpu, deadline)) = self.threads.timers.armed(Timer::Lapic(task))
            && pcpu != step.pcpu
        {
            self.threads.timers.arm(Timer::Lapic(task), step.pcpu, deadline);
        }
    }

    /// The thread of `vcpu` gives up the executing pCPU (preempt notifier `sched_out`).
    pub(crate) fn put(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::VcpuLoad, 1);
        let reports = self.guests.reports_preemption(vcpu);
        let task = self.guests.vcpus[vcpu].task;
        let sched = &self.threads.sched;
        let (runnable, throttled) = (sched.is_runnable(task), sched.is_throttled(task));
        self.interrupts.put(vcpu, runnable);
        let at = &mut self.guests.vcpus[vcpu];
        if runnable {
            at.preempted = true;
            at.ready = true;
            at.preempted_in_kernel = at.guest.cpl == 0;
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
        if at.activity != Activity::Dead {
            self.guests.report_preempted(vcpu, step);
        }
    }
}
