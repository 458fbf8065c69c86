//! When hardware virtualizes the LAPICs of a VM or a vCPU, and what asks for a switch (docs/spec/interrupts.md, "AVIC
//! activation").
//!
//! The set of inhibit reasons belongs to the VM. A change between empty and not empty requests an update of all its
//! vCPUs, and each switches itself before its next entry. KVM's requester waits until all have left guest mode. A step
//! cannot wait, and the handshakes do not need it.

use super::{Inhibit, Inhibits, VmApic};
use crate::boundary::{VcpuId, VmId};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Returns whether the host uses hardware that virtualizes the LAPICs of `vm`.
    pub(crate) fn virtualizes(&self, vm: VmId) -> bool {
        self.guests.vms[vm].apic.is_hardware()
    }

    /// Returns the inhibit reasons of `vm` that apply to the hardware of the host.
    fn inhibits(&self, vm: VmId) -> Inhibits {
        let this = &self.guests.vms[vm];
        match this.apic {
            VmApic::Avic(_) => this.inhibits,
            VmApic::Apicv(_) | VmApic::Emulated => this.inhibits.of_apicv(),
        }
    }

    /// Adds or removes an inhibit reason of `vm`, and requests updates if that switches the hardware. Has no effect on
    /// a reason of the configuration, which always holds.
    pub(crate) fn set_inhibit(&mut self, vm: VmId, reason: Inhibit, inhibited: bool, step: &mut Step<'_>) {
        let was_on = self.inhibits(vm).is_empty();
        let this = &mut self.guests.vms[vm];
        let before = this.inhibits;
        let all = &mut this.inhibits;
        all.set(reason, inhibited || this.config.apic_inhibits.has(reason));
        if *all == before || !self.virtualizes(vm) {
            return;
        }
        let first = self.guests.vms[vm].first;
        let counters = &mut self.guests.vcpus[VcpuId(first)].counters;
        counters.apicv_inhibit_changed += 1;
        if inhibited && let Some(counter) = reason.counter(counters) {
            *counter += 1;
        }
        if was_on == self.inhibits(vm).is_empty() {
            return;
        }
        for index in 0..self.guests.vms[vm].vcpus {
            self.request_update(VcpuId(first + index), step);
        }
    }

    /// Requests an update of `vcpu` (`KVM_REQ_APICV_UPDATE`). It sends no wakeup: a sleeping vCPU updates when it
    /// wakes.
    fn request_update(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        self.guests.vcpus[vcpu].requests.apic_update = true;
        if self.claim_exit(vcpu)
            && let Some(cpu) = self.guests.vcpus[vcpu].thread.cpu
        {
            step.ipi(cpu);
        }
    }

    /// Returns whether hardware shall virtualize the LAPIC of `vcpu`.
    pub(crate) fn wants_hardware(&self, vcpu: VcpuId) -> bool {
        let at = &self.guests.vcpus[vcpu];
        // The tables are those of the vCPU's own LAPIC, which its guest must not reach.
        if at.nested {
            return false;
        }
        self.virtualizes(at.vm) && self.inhibits(at.vm).is_empty() && at.apic.hardware_enabled()
    }

    /// Returns whether the vCPUs of `vm` can be in x2APIC mode. They cannot while AVIC without x2AVIC virtualizes
    /// LAPICs, unless it is hybrid.
    pub(crate) fn offers_x2apic(&self, vm: VmId) -> bool {
        let avic = &self.config.avic;
        self.guests.vms[vm].apic.avic().is_none() || avic.uses_x2avic() || avic.is_hybrid()
    }
}
