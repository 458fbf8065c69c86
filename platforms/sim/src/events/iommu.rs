//! The IOMMU in virtual time: a device's interrupt sets out for a host CPU, or it is in a guest's page at once and
//! rings a doorbell or the host.

use holdfast_host::{Host, HostInterrupt, PcpuId, VmId};
use holdfast_machine::Picos;
use holdfast_machine::iommu::{Delivery, Iommu, Notice};

use crate::books::happened::Happened;
use crate::engine::Engine;

/// The pCPU that takes the IOMMU's own interrupt.
const LOG_PCPU: PcpuId = PcpuId(0);

impl Engine {
    /// `device` signals its interrupt; `vm` is the guest to which it is assigned, if it is.
    pub fn device_signals(&mut self, device: u16, vm: Option<VmId>) {
        let delivery = Iommu::new(&self.host.memory(), Host::IOMMU).deliver(device);
        self.emit(&Happened::DeviceSignaled {
            device,
            vm,
            delivery: &delivery,
        });
        match delivery {
            Delivery::Host { vector, destination } => {
                self.send_ipi(PcpuId(destination), HostInterrupt::Device(vector), Picos::ZERO);
            }
            Delivery::Guest {
                notice: Notice::Doorbell(host_id),
                ..
            } => self.send_doorbell(PcpuId(host_id), Picos::ZERO),
            Delivery::Guest {
                notice: Notice::Log { interrupt: true },
                ..
            } => self.send_ipi(LOG_PCPU, HostInterrupt::GaLog, Picos::ZERO),
            Delivery::Guest { .. } | Delivery::Blocked => {}
        }
    }
}
