//! The IOMMU in virtual time: a device's interrupt sets out for a host CPU, or is in a guest's page at once and rings a doorbell
//! or the host.

use holdfast_host::{Host, HostInterrupt};
use holdfast_machine::iommu::{Delivery, Iommu, Notice};

use crate::core::engine::Engine;

/// The pCPU that the IOMMU's own interrupt goes to.
const LOG_PCPU: u32 = 0;

/// What the IOMMU did with the interrupts of a guest's devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct IommuCounts {
    /// Those that went by way of the host.
    pub by_host: u64,
    /// Those that it put into a page.
    pub posted: u64,
    /// Of these, those for which it rang a doorbell.
    pub doorbells: u64,
    /// Of these, those that it logged.
    pub logged: u64,
}

impl IommuCounts {
    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 4] {
        [
            ("iommu_by_host", self.by_host),
            ("iommu_posted", self.posted),
            ("iommu_doorbells", self.doorbells),
            ("iommu_logged", self.logged),
        ]
    }
}

impl Engine {
    /// `device` signals its interrupt; `vm`: the guest to which it is assigned, if it is.
    pub fn device_signals(&mut self, device: u16, vm: Option<u32>) {
        let memory = self.host.memory();
        let delivery = Iommu::new(&memory, Host::IOMMU).deliver(device);
        self.hash.add(self.now.0 ^ u64::from(device) << 48);
        let mut counts = IommuCounts::default();
        match delivery {
            Delivery::Blocked => {}
            Delivery::Host { vector, destination } => {
                counts.by_host += 1;
                let at = self.now + self.costs.ipi_latency;
                self.send_ipi(destination, HostInterrupt::Device(vector), at);
            }
            Delivery::Guest { tag, vector, notice } => {
                counts.posted += 1;
                if let Some(vm) = vm {
                    let target = self.vms[vm as usize].first_vcpu + tag.vcpu();
                    self.audit_sent(target, vector);
                }
                match notice {
                    Notice::Doorbell(host_id) => {
                        counts.doorbells += 1;
                        self.ring(host_id);
                    }
                    Notice::Log { interrupt } => {
                        counts.logged += 1;
                        if interrupt {
                            let at = self.now + self.costs.ipi_latency;
                            self.send_ipi(LOG_PCPU, HostInterrupt::GaLog, at);
                        }
                    }
                    Notice::None => {}
                }
            }
        }
        let Some(vm) = vm else { return };
        let sum = &mut self.vms[vm as usize].iommu;
        sum.by_host += counts.by_host;
        sum.posted += counts.posted;
        sum.doorbells += counts.doorbells;
        sum.logged += counts.logged;
    }
}
