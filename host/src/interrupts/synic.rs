//! Hyper-V's synthetic interrupt controller (SynIC): a guest's writes, and what they mean for hardware that virtualizes
//! LAPICs.
//!
//! Such hardware does not know of automatic EOI ([`Synic`](crate::interrupts::lapic::Synic)), so it is off for the VM
//! while a vCPU has a vector with it.

use super::{Inhibit, InterruptWing};
use crate::boundary::{VcpuId, VmId};
use crate::step::Step;

impl InterruptWing {
    /// Writes a SynIC register of `vcpu`. Returns `false` if that faults.
    pub(crate) fn write_synic(&mut self, vcpu: VcpuId, register: u32, value: u64, step: &mut Step<'_>) -> bool {
        let offered = self.guests.vm_of(vcpu).config.synic;
        let legal = offered && self.guests.change_apic(vcpu, |apic| apic.synic.write(register, value));
        if legal {
            self.synic_changed(vcpu, step);
        }
        legal
    }

    /// Switches hardware off or on for the VM of `vcpu`, whose SynIC may have changed.
    pub(crate) fn synic_changed(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let vm = self.guests.vcpus[vcpu].vm;
        if self.guests.vms[vm].config.synic {
            self.set_inhibit(vm, Inhibit::Hyperv, self.inhibits_by_synic(vm), step);
        }
    }

    /// Returns whether automatic EOI keeps hardware off for `vm`.
    pub(super) fn inhibits_by_synic(&self, vm: VmId) -> bool {
        let this = &self.guests.vms[vm];
        this.auto_eoi > 0 || this.config.apic_inhibits.has(Inhibit::Hyperv)
    }
}
