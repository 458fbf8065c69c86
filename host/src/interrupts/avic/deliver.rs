//! Interrupts that software delivers to a vCPU whose VM has AVIC
//! (docs/spec/interrupts.md, "AVIC injection and IsRunning").

use super::handshake::{self, Notice};
use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::interrupts::avic;
use crate::step::Step;
use crate::wings::Wings;

/// Pends `vector` for `vcpu`, whose LAPIC is enabled, and notifies it.
pub(crate) fn deliver(on: &mut Wings, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
    let at = &on.guests.vcpus[vcpu];
    let memory = on.memory();
    let tables = avic::setup::tables(on, &memory, vcpu);
    let notice = handshake::deliver(&tables, at, vector, level, Some(step.pcpu));
    notify(on, vcpu, notice, step);
    true
}

/// Notifies `vcpu` of an interrupt in its IRR. Hardware found it not running.
pub(crate) fn complete(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let at = &on.guests.vcpus[vcpu];
    let memory = on.memory();
    let tables = avic::setup::tables(on, &memory, vcpu);
    let notice = handshake::complete(&tables, at, Some(step.pcpu));
    notify(on, vcpu, notice, step);
}

fn notify(on: &mut Wings, vcpu: VcpuId, notice: Notice, step: &mut Step<'_>) {
    on.guests.vcpus[vcpu].apic.expect_requests();
    match notice {
        Notice::Kick => {
            on.guests.request_event(vcpu);
            on.kick(vcpu, step);
        }
        Notice::Doorbell(pcpu) => {
            on.guests.vcpus[vcpu].counters.avic_doorbell += 1;
            step.charge(Cost::Doorbell, 1);
            step.out.push(Command::Doorbell { to: PcpuId(pcpu) });
        }
        Notice::Unneeded => {}
        Notice::Wake => {
            on.wake_up(vcpu, step);
        }
    }
}
