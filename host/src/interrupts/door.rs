//! The door to what virtualizes LAPICs: each function dispatches to emulation, AMD's AVIC or Intel's APICv.

use super::{VcpuApic, apicv, avic};
use crate::boundary::{VcpuId, VmId};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Returns whether hardware virtualizes the LAPIC of `vcpu` at present.
    #[inline]
    pub(crate) fn is_virtualized(&self, vcpu: VcpuId) -> bool {
        self.guests.hardware(vcpu).is_active()
    }

    /// Gives `vm`, which has just been added, the APIC virtualization that the host uses.
    pub(crate) fn init_vm(&mut self, vm: VmId) {
        if self.config.avic.is_used() {
            avic::setup::init_vm(self, vm);
        } else if self.config.apicv.is_used() {
            apicv::setup::init_vm(self, vm);
        }
    }

    /// The thread of `vcpu` has taken `pcpu`.
    pub(crate) fn load(&mut self, vcpu: VcpuId, pcpu: u32) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated => {}
            VcpuApic::Avic(_) => avic::running::load(self, vcpu, pcpu),
            VcpuApic::Apicv(_) => apicv::running::load(self, vcpu, pcpu),
        }
    }

    /// The thread of `vcpu` gives up its pCPU. `ready`: it was preempted and wants to go on.
    pub(crate) fn put(&mut self, vcpu: VcpuId, ready: bool) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated => {}
            VcpuApic::Avic(_) => avic::running::put(self, vcpu),
            VcpuApic::Apicv(_) => apicv::running::put(self, vcpu, ready),
        }
    }

    /// `vcpu` is about to check whether its halt ends, and to sleep if it does not.
    pub(crate) fn prepare_block(&mut self, vcpu: VcpuId) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated => {}
            VcpuApic::Avic(_) => avic::running::blocking(self, vcpu),
            VcpuApic::Apicv(_) => self.sync(vcpu),
        }
    }

    /// The thread of `vcpu` goes to sleep in a halt, on `pcpu`.
    pub(crate) fn block(&mut self, vcpu: VcpuId, pcpu: u32) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated | VcpuApic::Avic(_) => {}
            VcpuApic::Apicv(_) => apicv::running::block(self, vcpu, pcpu),
        }
    }

    /// The halt of `vcpu`, which is on `pcpu`, is over.
    pub(crate) fn unblock(&mut self, vcpu: VcpuId, pcpu: u32) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated | VcpuApic::Apicv(_) => {}
            VcpuApic::Avic(_) => avic::running::unblocking(self, vcpu, pcpu),
        }
    }

    /// Moves interrupts that hardware posted for `vcpu` into its register page.
    pub(crate) fn sync(&mut self, vcpu: VcpuId) {
        apicv::running::sync(&self.memory(), vcpu, self.guests.planted.posting);
    }

    /// Requests the evaluation of interrupts that hardware posted for `vcpu`, whose LAPIC is emulated by now: their
    /// sender had not been switched yet.
    pub(crate) fn collect_late_posts(&mut self, vcpu: VcpuId) {
        let hardware = self.guests.hardware(vcpu);
        if hardware.is_posted() && !hardware.is_active() {
            self.sync(vcpu);
            self.guests.vcpus[vcpu].apic.expect_requests();
            self.guests.request_event(vcpu);
        }
    }

    /// Switches APIC virtualization of `vcpu`, outside guest mode on `pcpu`, on or off as the inhibit reasons demand
    /// (`kvm_vcpu_update_apicv`).
    pub(crate) fn update(&mut self, vcpu: VcpuId, pcpu: u32) {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated => {}
            VcpuApic::Avic(_) => avic::tables::update(self, vcpu, pcpu),
            VcpuApic::Apicv(_) => apicv::running::update(self, vcpu),
        }
    }

    /// Pends `vector` for `vcpu` by hardware, and notifies the vCPU. Returns `false` if software must deliver it.
    pub(crate) fn deliver_by_hardware(&mut self, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
        match self.guests.hardware(vcpu) {
            VcpuApic::Emulated => false,
            VcpuApic::Avic(_) => avic::deliver::deliver(self, vcpu, vector, level, step),
            VcpuApic::Apicv(_) => apicv::deliver::deliver(self, vcpu, vector, level, step),
        }
    }

    /// Drops interrupts that hardware posted for `vcpu`, whose LAPIC is reset.
    pub(crate) fn forget(&mut self, vcpu: VcpuId) {
        if let VcpuApic::Apicv(_) = self.guests.hardware(vcpu) {
            apicv::running::forget(self, vcpu);
        }
    }
}
