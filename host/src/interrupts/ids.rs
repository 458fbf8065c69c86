//! APIC IDs and addresses under APIC virtualization. The logical table follows the guest's LDRs and DFRs. IDs that the
//! tables cannot express inhibit the hardware (docs/spec/interrupts.md, "AVIC exits" and "AVIC activation").

use alloc::vec::Vec;

use holdfast_abi::lapic as reg;

use super::Inhibit;
use crate::boundary::{VcpuId, VmId};
use crate::interrupts::avic;
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Handles a new value in the register at `offset` of a LAPIC of `vm`.
    pub(crate) fn apic_register_written(&mut self, vm: VmId, offset: u32, step: &mut Step<'_>) {
        if matches!(offset, reg::ID | reg::LDR | reg::DFR) {
            self.apic_ids_changed(vm, step);
        }
    }

    /// Updates tables and inhibit reasons of `vm`: the ID, logical ID, model or mode of a LAPIC has changed.
    pub(crate) fn apic_ids_changed(&mut self, vm: VmId, step: &mut Step<'_>) {
        if !self.virtualizes(vm) {
            return;
        }
        for (reason, inhibited) in self.ids_inhibit(vm) {
            self.set_inhibit(vm, reason, inhibited, step);
        }
    }

    /// Returns which reasons the IDs of `vm` give against hardware that finds vCPUs by tables. Rewrites the logical
    /// table.
    fn ids_inhibit(&self, vm: VmId) -> [(Inhibit, bool); 4] {
        let this = &self.guests.vms[vm];
        let hidden = !self.offers_x2apic(vm);
        [
            (Inhibit::LogicalIdAliased, avic::tables::rebuild_logical_table(self, vm)),
            (Inhibit::PhysicalIdAliased, this.renamed > 0 && self.is_aliased(vm)),
            (Inhibit::ApicIdModified, this.renamed > 0),
            (Inhibit::X2apic, hidden && this.x2apic > 0),
        ]
    }

    /// Returns whether two enabled LAPICs have the same physical ID.
    fn is_aliased(&self, vm: VmId) -> bool {
        let on = self.guests.vcpus_of(vm).map(|vcpu| &self.guests.vcpus[vcpu].apic);
        let mut ids: Vec<u32> = on
            .filter(|apic| apic.hardware_enabled())
            .map(|apic| apic.physical_id())
            .collect();
        ids.sort_unstable();
        ids.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Handles a possible change of the mode or address of the LAPIC of `vcpu`, which checks its APIC virtualization
    /// before its next entry.
    pub(crate) fn apic_mode_changed(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        let (vm, moved) = (at.vm, at.apic.hardware_enabled() && !at.apic.is_at_home());
        at.requests.apic_update = true;
        self.apic_ids_changed(vm, step);
        if moved {
            self.set_inhibit(vm, Inhibit::ApicBaseModified, true, step);
        }
    }

    /// Updates tables and requests after the state of `vcpu` was restored. Its IDs are the saved ones, and its IRR may
    /// hold any vector.
    pub(crate) fn restored(&mut self, vcpu: VcpuId) {
        let at = &mut self.guests.vcpus[vcpu];
        let (vm, moved) = (at.vm, at.apic.hardware_enabled() && !at.apic.is_at_home());
        if !self.virtualizes(vm) || self.guests.planted.avic.restored_without_tables {
            return;
        }
        self.guests.vcpus[vcpu].requests.apic_update = true;
        // No vCPU runs yet, so none needs an IPI.
        let found = self.ids_inhibit(vm);
        let this = &mut self.guests.vms[vm];
        let (inhibits, always) = (&mut this.inhibits, this.config.apic_inhibits);
        for (reason, inhibited) in found {
            inhibits.set(reason, inhibited || always.has(reason));
        }
        if moved {
            inhibits.set(Inhibit::ApicBaseModified, true);
        }
    }
}
