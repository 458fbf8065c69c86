//! Devices behind Intel's IOMMU whose interrupts are posted (docs/spec/interrupts.md, "VT-d posted interrupts"; Linux,
//! `vmx_pi_update_irte`).
//!
//! An entry is posted while APICv is on for the one vCPU that the message addresses, and names the vCPU's descriptor
//! for all that time. Load, put and sleep change the descriptor only, unlike AVIC's remap entries.

use alloc::vec::Vec;

use holdfast_abi::vtd::Irte;

use crate::boundary::VcpuId;
use crate::interrupts::avic;
use crate::interrupts::memory;
use crate::wings::Wings;

/// Lets the IOMMU post the interrupts that are for `vcpu` alone. APICv of `vcpu` was switched on.
pub(super) fn activate(on: &mut Wings, vcpu: VcpuId) {
    if !on.config.apicv.posts_devices() {
        return;
    }
    for device in 0..on.apics.iommu.devices.len() {
        if let Some(message) = avic::iommu::message_for(on, vcpu, device) {
            avic::iommu::set_posted(on, device, Some(vcpu));
            let entry = Irte::posted(message.vector, memory::descriptor_address(vcpu));
            avic::iommu::write_irte(on, device, entry);
        }
    }
}

/// Makes interrupts of the devices of `vcpu` go through the host again: APICv is about to be switched off. Must
/// precede the last read of the descriptor.
pub(super) fn deactivate(on: &mut Wings, vcpu: VcpuId) {
    let devices: Vec<usize> = avic::iommu::posted_to(on, vcpu).collect();
    for device in devices {
        avic::iommu::set_posted(on, device, None);
        avic::iommu::route_by_host(on, device);
    }
}
