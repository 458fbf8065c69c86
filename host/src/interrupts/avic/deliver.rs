//! Interrupts that software delivers to a vCPU whose VM has AVIC
//! (docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::handshake::{self, Notice};
use super::{HostMemory, Seen};
use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::host::Host;
use crate::step::Step;

impl Host {
    /// Has hardware deliver `vector` to `vcpu`, whose LAPIC takes it. False if there is none that does.
    pub(crate) fn deliver_by_hardware(&mut self, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
        self.avic_deliver(vcpu, vector, level, step) || self.apicv_deliver(vcpu, vector, level, step)
    }

    /// Pends `vector` for `vcpu`, whose LAPIC takes it, and sees that it is noticed. False if `vcpu` has no AVIC.
    pub(crate) fn avic_deliver(&mut self, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
        let at = &self.vcpus[vcpu.0 as usize];
        if at.avic.is_none() {
            return false;
        }
        let memory = HostMemory(self);
        let tables = self.avic_tables(&memory, vcpu);
        let notice = handshake::deliver(&tables, &Seen(at), vector, level, Some(step.pcpu));
        self.notify(vcpu, notice, step);
        true
    }

    /// `vcpu`, which hardware found not running, has an interrupt in its IRR.
    pub(crate) fn avic_complete(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &self.vcpus[vcpu.0 as usize];
        let notice = handshake::complete(&Seen(at), Some(step.pcpu), self.config.avic.faults);
        self.notify(vcpu, notice, step);
    }

    fn notify(&mut self, vcpu: VcpuId, notice: Notice, step: &mut Step<'_>) {
        self.at(vcpu).apic.expect_requests();
        match notice {
            Notice::Kick => {
                self.request_event(vcpu);
                self.kick(vcpu, step);
            }
            Notice::Doorbell(pcpu) => {
                self.at(vcpu).counters.avic_doorbell += 1;
                step.charge(Cost::Doorbell, 1);
                step.out.push(Command::Doorbell { to: PcpuId(pcpu) });
            }
            Notice::Here => {}
            Notice::Wake => {
                self.wake_up(vcpu, step);
            }
        }
    }
}
