//! AVIC's logical APIC ID table, and switching AVIC of a vCPU on or off.

use core::sync::atomic::Ordering::Release;

use holdfast_abi::avic::{LOGICAL_ENTRIES, LogicalEntry, logical_index};
use holdfast_abi::{lapic as reg, vmcb};

use super::handshake;
use crate::boundary::{VcpuId, VmId};
use crate::interrupts::avic;
use crate::interrupts::lapic::ApicRegisters;
use crate::wings::Wings;

/// Rewrites the logical table. Returns whether two LAPICs would have the same entry, one would have several, or
/// their models differ, so that an entry means different destinations for different senders.
pub(in crate::interrupts) fn rebuild_logical_table(on: &Wings, vm: VmId) -> bool {
    let this = &on.guests.vms[vm];
    let Some(avic) = this.apic.avic() else { return false };
    let mut entries = [LogicalEntry::default(); LOGICAL_ENTRIES as usize];
    let mut aliased = false;
    let (mut model, any_x2apic) = (None, this.x2apic > 0);
    for index in 0..this.vcpus {
        let apic = &on.guests.vcpus[VcpuId(this.first + index)].apic;
        let page = apic.registers();
        let ldr = page.load(reg::LDR) >> 24;
        if apic.is_x2apic() || ldr == 0 {
            continue;
        }
        let flat = page.load(reg::DFR) == reg::DFR_FLAT;
        aliased |= any_x2apic || *model.get_or_insert(flat) != flat;
        match logical_index(ldr, flat) {
            Some(entry) if !entries[entry as usize].is_valid() && index <= 0xff => {
                entries[entry as usize] = LogicalEntry::new(index);
            }
            _ => aliased = true,
        }
    }
    for (word, entry) in avic.logical.iter().zip(entries) {
        word.store(entry.0, Release);
    }
    aliased
}

/// Switches AVIC of `vcpu`, outside guest mode on `pcpu`, as the inhibit reasons demand (`kvm_vcpu_update_apicv`).
pub(crate) fn update(on: &mut Wings, vcpu: VcpuId, pcpu: u32) {
    let (wanted, is) = (on.wants_hardware(vcpu), on.is_virtualized(vcpu));
    let at = &mut on.guests.vcpus[vcpu];
    let x2apic = on.config.avic.uses_x2avic() && at.apic.is_x2apic();
    if let Some(avic) = at.virtualization.avic_mut() {
        let clear = vmcb::AVIC_ENABLE | vmcb::X2APIC_MODE | vmcb::V_IRQ | vmcb::V_INTR_PRIORITY | vmcb::V_IGN_TPR;
        let set = match (wanted, x2apic) {
            (true, true) => vmcb::AVIC_ENABLE | vmcb::X2APIC_MODE,
            (true, false) => vmcb::AVIC_ENABLE,
            (false, _) => 0,
        };
        let control = avic.vmcb.read32(vmcb::INT_CTL) & !clear | set;
        avic.vmcb.write32(vmcb::INT_CTL, control | vmcb::V_INTR_MASKING);
        // Hardware keeps CR8 while AVIC is on.
        let intercepts = avic.vmcb.read32(vmcb::INTERCEPT_CR) & !vmcb::INTERCEPT_CR8_WRITE;
        avic.vmcb.write32(vmcb::INTERCEPT_CR, intercepts);
        let clean = avic.vmcb.read32(vmcb::CLEAN) & !vmcb::CLEAN_AVIC;
        avic.vmcb.write32(vmcb::CLEAN, clean);
    }
    if wanted == is {
        return;
    }
    if wanted {
        // IDs may have changed while the tables were not kept.
        let at = &mut on.guests.vcpus[vcpu];
        at.armed.window = false;
        let vm = at.vm;
        if !on.guests.planted.avic.restored_without_tables {
            rebuild_logical_table(on, vm);
        }
    }
    if wanted {
        avic::iommu::activate(on, vcpu, pcpu);
    } else {
        avic::iommu::deactivate(on, vcpu);
    }
    let memory = on.memory();
    let (tables, seen) = (avic::setup::tables(on, &memory, vcpu), &on.guests.vcpus[vcpu]);
    if wanted {
        handshake::activate(&tables, seen, pcpu);
    } else {
        handshake::deactivate(&tables, seen);
    }
    on.guests.vcpus[vcpu].apic.hardware_switched();
    if !wanted {
        on.guests.request_event(vcpu);
    }
}
