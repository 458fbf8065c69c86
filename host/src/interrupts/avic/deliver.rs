//! Interrupts that software delivers to a vCPU whose VM has AVIC
//! (docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::handshake::{self, Notice};
use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Pends `vector` for `vcpu`, whose LAPIC is enabled, and notifies it.
    pub(crate) fn avic_deliver(&mut self, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
        let at = &self.guests.vcpus[vcpu];
        let memory = self.memory();
        let tables = self.avic_tables(&memory, vcpu);
        let notice = handshake::deliver(&tables, at, vector, level, Some(step.pcpu));
        self.notify(vcpu, notice, step);
        true
    }

    /// Notifies `vcpu` of an interrupt in its IRR. Hardware found it not running.
    pub(crate) fn avic_complete(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &self.guests.vcpus[vcpu];
        let memory = self.memory();
        let tables = self.avic_tables(&memory, vcpu);
        let notice = handshake::complete(&tables, at, Some(step.pcpu));
        self.notify(vcpu, notice, step);
    }

    fn notify(&mut self, vcpu: VcpuId, notice: Notice, step: &mut Step<'_>) {
        self.guests.vcpus[vcpu].apic.expect_requests();
        match notice {
            Notice::Kick => {
                self.guests.request_event(vcpu);
                self.kick(vcpu, step);
            }
            Notice::Doorbell(pcpu) => {
                self.guests.vcpus[vcpu].counters.avic_doorbell += 1;
                step.charge(Cost::Doorbell, 1);
                step.out.push(Command::Doorbell { to: PcpuId(pcpu) });
            }
            Notice::Unneeded => {}
            Notice::Wake => {
                self.wake_up(vcpu, step);
            }
        }
    }
}
