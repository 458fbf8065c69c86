//! APIC IDs and places under AVIC and APICv: the logical table follows the guest's LDRs and DFRs, and what tables
//! cannot express inhibits (docs/spec/interrupts.md, "AVIC exits" and "AVIC activation").

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Release;

use holdfast_abi::avic::{LogicalEntry, logical_index};
use holdfast_abi::lapic as reg;

use super::inhibit::Inhibit;
use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::interrupts::lapic::ApicRegisters;
use crate::step::Step;

impl Host {
    /// A LAPIC of `vm` has a new value in the register at `offset`.
    pub(crate) fn apic_register_written(&mut self, vm: VmId, offset: u32, step: &mut Step<'_>) {
        if matches!(offset, reg::ID | reg::LDR | reg::DFR) {
            self.apic_ids_changed(vm, step);
        }
    }

    /// A LAPIC of `vm` has another ID, logical ID, model or mode than before.
    pub(crate) fn apic_ids_changed(&mut self, vm: VmId, step: &mut Step<'_>) {
        if !self.virtualizes(vm) {
            return;
        }
        for (reason, inhibited) in self.ids_inhibit(vm) {
            self.set_apicv_inhibit(vm, reason, inhibited, step);
        }
    }

    /// Which reasons there are in the IDs of `vm` against hardware that finds vCPUs by tables; writes the logical one anew.
    fn ids_inhibit(&self, vm: VmId) -> [(Inhibit, bool); 4] {
        let this = &self.vms[vm.0 as usize];
        let hidden = this.avic.is_some() && !self.config.avic.uses_x2avic();
        [
            (Inhibit::LogicalIdAliased, self.rebuild_logical_table(vm)),
            (Inhibit::PhysicalIdAliased, this.renamed > 0 && self.is_aliased(vm)),
            (Inhibit::ApicIdModified, this.renamed > 0),
            (Inhibit::X2apic, hidden && this.x2apic > 0),
        ]
    }

    /// Whether one physical ID names two LAPICs that are on.
    fn is_aliased(&self, vm: VmId) -> bool {
        let on = self.vcpus(vm).map(|vcpu| &self.vcpus[vcpu.0 as usize].apic);
        let mut ids: Vec<u32> = on
            .filter(|apic| apic.hardware_enabled())
            .map(|apic| apic.physical_id())
            .collect();
        ids.sort_unstable();
        ids.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// The mode or the place of the LAPIC of `vcpu` may have changed: it looks at what hardware shall do before its next entry.
    pub(crate) fn apic_mode_changed(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        let (vm, moved) = (at.vm, at.apic.hardware_enabled() && !at.apic.is_at_home());
        at.requests.apicv_update = true;
        self.apic_ids_changed(vm, step);
        if moved {
            self.set_apicv_inhibit(vm, Inhibit::ApicBaseModified, true, step);
        }
    }

    /// Writes the logical table anew. Whether two LAPICs would have the same entry, or one several, or their models differ:
    /// then an entry means another destination for one sender than for the next.
    pub(super) fn rebuild_logical_table(&self, vm: VmId) -> bool {
        let this = &self.vms[vm.0 as usize];
        let Some(avic) = &this.avic else { return false };
        let mut entries = [LogicalEntry::default(); holdfast_abi::avic::LOGICAL_ENTRIES as usize];
        let mut aliased = false;
        let (mut model, any_x2apic) = (None, this.x2apic > 0);
        for index in 0..this.vcpus {
            let apic = &self.vcpus[(this.first + index) as usize].apic;
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

    /// Tables and requests after the state of `vcpu` was restored: its IDs are what was saved, and its IRR may hold anything.
    pub(crate) fn apicv_restored(&mut self, vcpu: VcpuId) {
        let at = self.at(vcpu);
        let (vm, moved) = (at.vm, at.apic.hardware_enabled() && !at.apic.is_at_home());
        if !self.virtualizes(vm) || self.config.avic.faults.restored_without_tables {
            return;
        }
        self.at(vcpu).requests.apicv_update = true;
        // Nobody runs yet: there is nobody to be asked to look.
        let found = self.ids_inhibit(vm);
        let inhibits = &mut self.vms[vm.0 as usize].inhibits;
        for (reason, inhibited) in found {
            inhibits.set(reason, inhibited);
        }
        if moved {
            inhibits.set(Inhibit::ApicBaseModified, true);
        }
    }
}
