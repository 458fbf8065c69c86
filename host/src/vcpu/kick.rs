//! Waking a sleeping vCPU, kicking a running one, and the kick hypercall
//! (docs/spec/host.md, "Wake and kick" and "Kick hypercall").

use crate::boundary::{Cost, VcpuId, VcpuState};
use crate::host::Host;
use crate::interrupts::lapic::Message;
use crate::step::Step;
use crate::timer::Timer;
use crate::vcpu::Activity;

impl Host {
    /// Wakes the thread of `vcpu` if it sleeps in a halt or after a pause exit; false otherwise. Never an IPI to guest
    /// mode.
    pub(crate) fn wake_up(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
        let at = self.at(vcpu);
        let (task, cpu) = (at.task, at.cpu);
        match at.activity {
            Activity::Poll { .. } => {
                // Not asleep: its loop sees what it waits for.
                self.poll_kicks.extend(cpu.filter(|&cpu| cpu != step.pcpu));
                return false;
            }
            Activity::Block | Activity::PauseSleep => {}
            Activity::Run | Activity::Dead => return false,
        }
        if !self.wake_thread(vcpu, step) {
            return false;
        }
        self.timers.cancel(Timer::Sleep(task));
        self.at(vcpu).counters.halt_wakeup += 1;
        true
    }

    /// Wakes the thread of `vcpu`; false if it does not sleep.
    pub(crate) fn wake_thread(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
        let task = self.at(vcpu).task;
        let woken = self.sched.wake(task, step);
        if woken {
            let at = self.at(vcpu);
            at.ready = true;
            at.set_state(VcpuState::Woken, step);
        }
        woken
    }

    /// Makes `vcpu` look at its requests: wakes it, or interrupts guest mode, or does nothing because it will look anyway.
    pub(crate) fn kick(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if self.wake_up(vcpu, step) {
            return;
        }
        // The first to find it in guest mode sends the IPI; who comes later relies on that.
        if self.claim_exit(vcpu)
            && let Some(cpu) = self.at(vcpu).cpu
        {
            assert!(
                cpu != step.pcpu,
                "vcpu {} is in guest mode where the host executes",
                vcpu.0
            );
            step.ipi(cpu);
        }
    }

    /// `KVM_HC_KICK_CPU` from `vcpu`: ends the present or next halt of the vCPU with `apic_id`, if there is one.
    pub(crate) fn kick_hypercall(&mut self, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        at.counters.kicks_sent += 1;
        let (vm, index) = (at.vm, at.index);
        if apic_id >= self.vms[vm.0 as usize].vcpus {
            return;
        }
        self.deliver(vm, &Message::unhalt(index, apic_id), step);
        if self.config.pause.kick_yields {
            self.yield_hypercall(vcpu, apic_id, step);
        }
    }

    /// `vcpu` offers its time to the vCPU with `apic_id`, if there is one and it waits for a pCPU: `KVM_HC_SCHED_YIELD`,
    /// and the end of a kick.
    pub(crate) fn yield_hypercall(&mut self, vcpu: VcpuId, apic_id: u32, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        at.counters.directed_yield_attempted += 1;
        let vm = at.vm;
        if self.sched.runs_alone(step.pcpu) || apic_id >= self.vms[vm.0 as usize].vcpus {
            return;
        }
        let target = self.vcpu_id(vm, apic_id);
        let itself = target == vcpu && !self.config.pause.faults.self_kick_yields;
        if itself || !(self.at(target).ready || target == vcpu) {
            return;
        }
        step.charge(Cost::SpinCandidate, 1);
        self.directed_yield(vcpu, target, step);
    }
}
