//! I/O ports: the doorbells of devices (ioeventfd).

use super::InterruptWing;
use crate::boundary::{Cost, VcpuId};
use crate::step::Step;

impl InterruptWing<'_> {
    /// `vcpu` executes OUT to `port`: wakes the thread of the device whose doorbell is there.
    pub(crate) fn port_write(&mut self, vcpu: VcpuId, port: u16, step: &mut Step<'_>) {
        step.charge(Cost::PortWrite, 1);
        let at = self.guests.vcpu_mut(vcpu);
        at.counters.io_exits += 1;
        let vm = at.vm;
        let bell = self.guests.vms[vm].doorbells.iter().find(|(known, _)| *known == port);
        if let Some(&(_, task)) = bell {
            self.threads.wake_task(task, step);
        }
    }
}
