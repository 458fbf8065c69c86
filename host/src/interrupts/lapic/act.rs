//! Carrying out what a LAPIC access asks for, and running the LAPIC timer on a host timer.

use super::{Action, Message};
use crate::boundary::{Cost, VcpuId, VmId};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::Mode;
use crate::wings::Wings;

impl Wings {
    /// Handles a device's signal `data` at `address`.
    pub(crate) fn msi(&mut self, vm: VmId, address: u64, data: u32, step: &mut Step<'_>) {
        if let Some(message) = Message::of_msi(address, data) {
            self.deliver(vm, &message, step);
        }
    }

    /// Carries out `action`, which a LAPIC access of `vcpu` asked for.
    pub(crate) fn act(&mut self, vcpu: VcpuId, action: Action, step: &mut Step<'_>) {
        match action {
            Action::None => {}
            Action::Event => self.guests.request_event(vcpu),
            Action::Ended => {
                self.guests.vcpus[vcpu].counters.eoi += 1;
                self.guests.request_event(vcpu);
            }
            Action::Send(message) => {
                let at = &mut self.guests.vcpus[vcpu];
                at.counters.ipis_sent += 1;
                let vm = at.vm;
                self.deliver(vm, &message, step);
            }
            Action::Timer => self.arm_apic_timer(vcpu, step.pcpu),
        }
    }

    /// Sets the host timer of `vcpu` to the deadline of its LAPIC timer, on `pcpu`.
    pub(crate) fn arm_apic_timer(&mut self, vcpu: VcpuId, pcpu: u32) {
        let at = &mut self.guests.vcpus[vcpu];
        let (task, deadline) = (at.thread.timer, at.apic.timer.deadline);
        match deadline {
            Some(deadline) => self.threads.timers.arm(Timer::Lapic(task), pcpu, deadline),
            None => self.threads.timers.cancel(Timer::Lapic(task)),
        }
    }

    /// Handles the expiry of the LAPIC timer of `vcpu` on the executing pCPU.
    pub(crate) fn apic_timer_expired(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        let elsewhere = at.mode.get() == Mode::InGuest && at.thread.cpu != Some(step.pcpu);
        assert!(!elsewhere, "the timer of vcpu {} expires where it does not run", vcpu.0);
        at.counters.apic_timer += 1;
        let accepted = match at.apic.timer_expired(step.now) {
            Some(vector) if vector >= holdfast_abi::lapic::FIRST_LEGAL_VECTOR => {
                let enabled = at.apic.is_enabled();
                self.trace_accepted(vcpu, vector, step);
                if enabled && self.deliver_by_hardware(vcpu, vector, false, step) {
                    step.charge(Cost::ApicDeliver, 1);
                    self.arm_apic_timer(vcpu, step.pcpu);
                    return;
                }
                self.guests.vcpus[vcpu].apic.accept(vector, false)
            }
            Some(_) => {
                at.apic.receive_error();
                true
            }
            None => false,
        };
        self.arm_apic_timer(vcpu, step.pcpu);
        if accepted {
            step.charge(Cost::ApicDeliver, 1);
            self.guests.request_event(vcpu);
            self.kick(vcpu, step);
        }
    }
}
