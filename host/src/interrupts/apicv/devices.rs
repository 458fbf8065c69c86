//! Devices behind Intel's IOMMU whose interrupts are posted (docs/spec/interrupts.md, "VT-d posted interrupts"; Linux,
//! `vmx_pi_update_irte`).
//!
//! An entry is posted while APICv is on for the one vCPU that the message addresses, and names the vCPU's descriptor
//! for all that time. Load, put and sleep change the descriptor only, unlike AVIC's remap entries.

use alloc::vec::Vec;

use holdfast_abi::vtd::Irte;

use crate::boundary::VcpuId;
use crate::interrupts::memory;
use crate::wings::Wings;

impl Wings {
    /// Lets the IOMMU post the interrupts that are for `vcpu` alone. APICv of `vcpu` was switched on.
    pub(super) fn vtd_activate(&mut self, vcpu: VcpuId) {
        if !self.config.apicv.posts_devices() {
            return;
        }
        for device in 0..self.apics.iommu.devices.len() {
            if let Some(message) = self.message_for(vcpu, device) {
                self.set_posted(device, Some(vcpu));
                let entry = Irte::posted(message.vector, memory::descriptor_address(vcpu));
                self.write_irte(device, entry);
            }
        }
    }

    /// Makes interrupts of the devices of `vcpu` go through the host again: APICv is about to be switched off. Must
    /// precede the last read of the descriptor.
    pub(super) fn vtd_deactivate(&mut self, vcpu: VcpuId) {
        let devices: Vec<usize> = self.posted_to(vcpu).collect();
        for device in devices {
            self.set_posted(device, None);
            self.route_by_host(device);
        }
    }
}
