//! Exits for interrupt controllers: emulated accesses, and what the hardware of either vendor leaves to software.

use crate::boundary::{Cost, Exit, VcpuId};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Handles `exit` of `vcpu`, which accessed an interrupt controller, an address without memory, or a port.
    ///
    /// # Panics
    /// If another wing handles exits of this kind.
    pub(crate) fn exit(&mut self, vcpu: VcpuId, exit: Exit, step: &mut Step<'_>) {
        match exit {
            Exit::ApicWrite { offset, value } => self.apic_write(vcpu, offset, value, step),
            Exit::ApicRead { offset } => self.apic_read(vcpu, offset, step),
            Exit::MmioWrite { address, value, bytes } => self.mmio_write(vcpu, address, value, bytes, step),
            Exit::MmioRead { address, bytes } => self.mmio_read(vcpu, address, bytes, step),
            Exit::AvicIncompleteIpi(exit) => self.avic_incomplete_ipi(vcpu, exit, step),
            Exit::AvicNoAccel { exit, offset, value } => self.avic_unaccelerated(vcpu, exit, offset, value, step),
            Exit::ApicvWrite { offset, value } => self.apicv_write(vcpu, offset, value, step),
            Exit::ApicvEoi { vector } => self.apicv_eoi(vcpu, vector, step),
            Exit::PortWrite { port, .. } => self.port_write(vcpu, port, step),
            other => unreachable!("no exit of an interrupt controller: {other:?}"),
        }
    }

    /// `vcpu` executes OUT to `port`: wakes the thread of the device whose doorbell is there (ioeventfd).
    fn port_write(&mut self, vcpu: VcpuId, port: u16, step: &mut Step<'_>) {
        step.charge(Cost::PortWrite, 1);
        let at = &mut self.guests.vcpus[vcpu];
        at.counters.io_exits += 1;
        let vm = at.vm;
        let bell = self.guests.vms[vm].doorbells.iter().find(|(known, _)| *known == port);
        if let Some(&(_, task)) = bell {
            self.threads.wake_task(task, step);
        }
    }
}
