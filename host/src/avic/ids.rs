//! APIC IDs under AVIC: the logical table follows the guest's LDRs and DFRs, and what tables cannot express inhibits (§6.4, §6.6).

use core::sync::atomic::Ordering::Release;

use holdfast_abi::avic::{LogicalEntry, logical_index};
use holdfast_abi::lapic as reg;

use super::inhibit::Inhibit;
use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::lapic::ApicRegisters;
use crate::step::Step;

impl Host {
    /// A LAPIC of `vm` has another ID, logical ID, model or mode than before.
    pub(crate) fn avic_ids_changed(&mut self, vm: VmId, step: &mut Step<'_>) {
        if self.vms[vm.0 as usize].avic.is_none() {
            return;
        }
        let aliased = self.rebuild_logical_table(vm);
        let renamed = self.vms[vm.0 as usize].renamed > 0;
        let x2apic = self.vms[vm.0 as usize].x2apic > 0 && !self.config.avic.uses_x2avic();
        self.set_apicv_inhibit(vm, Inhibit::LogicalIdAliased, aliased, step);
        self.set_apicv_inhibit(vm, Inhibit::ApicIdModified, renamed, step);
        self.set_apicv_inhibit(vm, Inhibit::X2apic, x2apic, step);
    }

    /// The mode of the LAPIC of `vcpu` may have changed: it looks at what AVIC shall be before its next entry.
    pub(crate) fn avic_mode_changed(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        if at.avic.is_some() {
            at.requests.apicv_update = true;
            let vm = at.vm;
            self.avic_ids_changed(vm, step);
        }
    }

    /// Writes the logical table anew. Whether two LAPICs would have the same entry, or one several.
    pub(super) fn rebuild_logical_table(&mut self, vm: VmId) -> bool {
        let this = &self.vms[vm.0 as usize];
        let Some(avic) = &this.avic else { return false };
        let mut entries = [LogicalEntry::default(); holdfast_abi::avic::LOGICAL_ENTRIES as usize];
        let mut aliased = false;
        for index in 0..this.vcpus {
            let apic = &self.vcpus[(this.first + index) as usize].apic;
            let page = apic.registers();
            let ldr = page.load(reg::LDR) >> 24;
            if apic.is_x2apic() || ldr == 0 {
                continue;
            }
            match logical_index(ldr, page.load(reg::DFR) == reg::DFR_FLAT) {
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

    /// Tables and requests after the state of `vcpu` was restored: its IDs are what was saved, and its IRR may hold anything.
    pub(crate) fn avic_restored(&mut self, vcpu: VcpuId) {
        let vm = self.at(vcpu).vm;
        if self.vms[vm.0 as usize].avic.is_none() || self.config.avic.faults.restored_without_tables {
            return;
        }
        self.at(vcpu).requests.apicv_update = true;
        let aliased = self.rebuild_logical_table(vm);
        let (renamed, x2apic) = (
            self.vms[vm.0 as usize].renamed > 0,
            self.vms[vm.0 as usize].x2apic > 0 && !self.config.avic.uses_x2avic(),
        );
        // Nobody runs yet: there is nobody to be asked to look.
        if let Some(avic) = &mut self.vms[vm.0 as usize].avic {
            avic.inhibits.set(Inhibit::LogicalIdAliased, aliased);
            avic.inhibits.set(Inhibit::ApicIdModified, renamed);
            avic.inhibits.set(Inhibit::X2apic, x2apic);
        }
    }
}
