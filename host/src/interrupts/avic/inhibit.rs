//! Why hardware does not virtualise the LAPICs of a VM or a vCPU, and how AVIC is switched
//! (docs/spec/interrupts.md, "AVIC activation").
//!
//! The set of reasons belongs to the VM. Whoever makes it empty or not empty requests an update of all its vCPUs, and each
//! switches itself before its next entry. (KVM's requester waits until they have left guest mode; here a step cannot wait, and
//! the handshake does not need it.)

use super::handshake;
use super::{HostMemory, Seen};
use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::step::Step;
use holdfast_abi::vmcb;

/// Why AVIC, and for some reasons APICv, cannot be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Inhibit {
    /// Switched off for this VM.
    Disabled,
    /// No LAPIC in the kernel.
    Absent,
    /// Hyper-V's automatic EOI.
    Hyperv,
    /// A debugger holds back interrupts.
    BlockIrq,
    /// Two vCPUs with one physical APIC ID, as long as they have it.
    PhysicalIdAliased,
    /// A guest gave a vCPU another APIC ID than its own, as long as it has it.
    ApicIdModified,
    /// A guest moved a LAPIC's page: for ever, as in KVM.
    ApicBaseModified,
    /// A nested guest runs (VM-wide, 5.6 to 5.18).
    Nested,
    /// An interrupt window is needed for an interrupt from outside the LAPIC.
    IrqWindow,
    /// The timer chip re-injects, and needs exits for EOI.
    PitReinject,
    /// The VM's memory is encrypted.
    Sev,
    /// Two vCPUs with one logical APIC ID, an ID that is not one bit, or IDs in several models.
    LogicalIdAliased,
    /// An APIC ID beyond the table.
    PhysicalIdTooBig,
    /// A vCPU in x2APIC mode, and no x2AVIC (before 6.0).
    X2apic,
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inhibits(u32);

impl Inhibits {
    /// No reason.
    pub const NONE: Inhibits = Inhibits(0);

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `reason` is among them.
    pub const fn has(self, reason: Inhibit) -> bool {
        self.0 & 1 << reason as u8 != 0
    }

    /// Adds `reason`, or takes it out.
    pub const fn set(&mut self, reason: Inhibit, inhibited: bool) {
        if inhibited {
            self.0 |= 1 << reason as u8;
        } else {
            self.0 &= !(1 << reason as u8);
        }
    }

    /// Those that also switch APICv off (`VMX_REQUIRED_APICV_INHIBITS`): it has other tables.
    pub(crate) const fn of_apicv(self) -> Inhibits {
        let mut relevant = Inhibits::NONE;
        let mut at = 0;
        while at < APICV.len() {
            relevant.set(APICV[at], true);
            at += 1;
        }
        Inhibits(self.0 & relevant.0)
    }
}

const APICV: [Inhibit; 7] = [
    Inhibit::Disabled,
    Inhibit::Absent,
    Inhibit::Hyperv,
    Inhibit::BlockIrq,
    Inhibit::PhysicalIdAliased,
    Inhibit::ApicIdModified,
    Inhibit::ApicBaseModified,
];

impl Host {
    /// Why AVIC or APICv is off for `vm`; `None` if the host uses neither.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn apicv_inhibits(&self, vm: VmId) -> Option<Inhibits> {
        self.virtualizes(vm).then(|| self.vms[vm.0 as usize].inhibits)
    }

    /// Whether the host uses hardware that virtualises the LAPICs of `vm`.
    pub(crate) fn virtualizes(&self, vm: VmId) -> bool {
        let this = &self.vms[vm.0 as usize];
        this.avic.is_some() || this.apicv.is_some()
    }

    /// Why the LAPICs of `vm` are not virtualised by the hardware that the host uses.
    fn inhibits(&self, vm: VmId) -> Inhibits {
        let this = &self.vms[vm.0 as usize];
        if this.avic.is_some() {
            this.inhibits
        } else {
            this.inhibits.of_apicv()
        }
    }

    /// Adds `reason` to what inhibits hardware in `vm`, or takes it out.
    pub(crate) fn set_apicv_inhibit(&mut self, vm: VmId, reason: Inhibit, inhibited: bool, step: &mut Step<'_>) {
        let was_on = self.inhibits(vm).is_empty();
        let all = &mut self.vms[vm.0 as usize].inhibits;
        let before = *all;
        all.set(reason, inhibited);
        if *all == before || !self.virtualizes(vm) {
            return;
        }
        let first = self.vms[vm.0 as usize].first;
        self.at(VcpuId(first)).counters.apicv_inhibit_changed += 1;
        if was_on == self.inhibits(vm).is_empty() {
            return;
        }
        for index in 0..self.vms[vm.0 as usize].vcpus {
            self.request_apicv_update(VcpuId(first + index), step);
        }
    }

    /// `vcpu` begins or ends to run a guest of its own.
    pub(crate) fn set_nested(&mut self, vcpu: VcpuId, nested: bool, step: &mut Step<'_>) {
        if let Some(avic) = &mut self.at(vcpu).avic {
            avic.nested = nested;
            self.request_apicv_update(vcpu, step);
        }
    }

    /// `KVM_REQ_APICV_UPDATE`: no wake-up, since who sleeps will look.
    fn request_apicv_update(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        self.at(vcpu).requests.apicv_update = true;
        if self.claim_exit(vcpu)
            && let Some(cpu) = self.at(vcpu).cpu
        {
            step.ipi(cpu);
        }
    }

    /// Whether hardware shall virtualise the LAPIC of `vcpu`.
    pub(crate) fn wants_apicv(&self, vcpu: VcpuId) -> bool {
        let at = &self.vcpus[vcpu.0 as usize];
        let nested = at.avic.as_ref().is_some_and(|avic| avic.nested);
        self.virtualizes(at.vm) && self.inhibits(at.vm).is_empty() && !nested && at.apic.hardware_enabled()
    }

    /// Switches AVIC of `vcpu`, outside guest mode on `pcpu`, to what it shall be (`kvm_vcpu_update_apicv`).
    pub(crate) fn update_apicv(&mut self, vcpu: VcpuId, pcpu: u32) {
        if self.at(vcpu).avic.is_none() {
            return;
        }
        let (wanted, is) = (self.wants_apicv(vcpu), self.is_avic_active(vcpu));
        let x2apic = self.config.avic.uses_x2avic() && self.at(vcpu).apic.is_x2apic();
        if let Some(avic) = &mut self.at(vcpu).avic {
            let clear = vmcb::AVIC_ENABLE | vmcb::X2APIC_MODE | vmcb::V_IRQ | vmcb::V_INTR_PRIORITY | vmcb::V_IGN_TPR;
            let set = match (wanted, x2apic) {
                (true, true) => vmcb::AVIC_ENABLE | vmcb::X2APIC_MODE,
                (true, false) => vmcb::AVIC_ENABLE,
                (false, _) => 0,
            };
            let control = avic.vmcb.read32(vmcb::INT_CTL) & !clear | set;
            avic.vmcb.write32(vmcb::INT_CTL, control | vmcb::V_INTR_MASKING);
            // CR8 is the hardware's while AVIC is on.
            let intercepts = avic.vmcb.read32(vmcb::INTERCEPT_CR) & !vmcb::INTERCEPT_CR8_WRITE;
            avic.vmcb.write32(vmcb::INTERCEPT_CR, intercepts);
            let clean = avic.vmcb.read32(vmcb::CLEAN) & !vmcb::CLEAN_AVIC;
            avic.vmcb.write32(vmcb::CLEAN, clean);
        }
        if wanted == is {
            return;
        }
        if wanted {
            // IDs may have changed while nobody kept the tables.
            let vm = self.at(vcpu).vm;
            if !self.config.avic.faults.restored_without_tables {
                self.rebuild_logical_table(vm);
            }
            self.at(vcpu).window = false;
        }
        if wanted {
            self.iommu_activate(vcpu, pcpu);
        } else {
            self.iommu_deactivate(vcpu);
        }
        let memory = HostMemory(self);
        let (tables, seen) = (self.avic_tables(&memory, vcpu), Seen(&self.vcpus[vcpu.0 as usize]));
        if wanted {
            handshake::activate(&tables, &seen, pcpu);
        } else {
            handshake::deactivate(&tables, &seen);
        }
        self.at(vcpu).apic.expect_requests();
        if !wanted {
            self.request_event(vcpu);
        }
    }
}
