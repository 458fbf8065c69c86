//! Exits for interrupt controllers: emulated accesses, and what the hardware of either vendor leaves to software.

use crate::boundary::{Cost, Exit, VcpuId};
use crate::interrupts::apicv;
use crate::interrupts::avic;
use crate::interrupts::mmio;
use crate::step::Step;
use crate::wings::Wings;

/// Handles `exit` of `vcpu`, which accessed an interrupt controller or a port.
///
/// # Panics
/// If another wing handles exits of this kind.
pub(crate) fn exit(on: &mut Wings, vcpu: VcpuId, exit: Exit, step: &mut Step<'_>) {
    match exit {
        Exit::ApicWrite { offset, value } => mmio::apic_write(on, vcpu, offset, value, step),
        Exit::ApicRead { offset } => mmio::apic_read(on, vcpu, offset, step),
        Exit::AvicIncompleteIpi(exit) => avic::exits::incomplete_ipi(on, vcpu, exit, step),
        Exit::AvicNoAccel { exit, offset, value } => avic::exits::unaccelerated(on, vcpu, exit, offset, value, step),
        Exit::ApicvWrite { offset, value } => apicv::exits::write(on, vcpu, offset, value, step),
        Exit::PortWrite { port, .. } => port_write(on, vcpu, port, step),
        other => unreachable!("no exit of an interrupt controller: {other:?}"),
    }
}

/// `vcpu` executes OUT to `port`: wakes the thread of the device whose doorbell is there (ioeventfd).
fn port_write(on: &mut Wings, vcpu: VcpuId, port: u16, step: &mut Step<'_>) {
    step.charge(Cost::PortWrite, 1);
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.io_exits += 1;
    let vm = at.vm;
    let bell = on.guests.vms[vm].doorbells.iter().find(|(known, _)| *known == port);
    if let Some(&(_, task)) = bell {
        on.threads.wake_task(task, step);
    }
}
