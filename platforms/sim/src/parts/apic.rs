//! The APIC virtualization of the machine's CPU model, and its operations on a vCPU's tables.

use holdfast_abi::vmcs::VIRTUALIZE_X2APIC;
use holdfast_host::{Cost, Host, HostMemory, VcpuId};
use holdfast_machine::apicv::Apicv;
use holdfast_machine::avic::Avic;
use holdfast_machine::{ApicvModel, AvicModel, Picos};

/// How a guest reaches its LAPIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApicMode {
    /// By loads from and stores to the LAPIC's page.
    Page,
    /// By MSRs (x2APIC).
    Msrs,
}

/// The hardware that virtualizes the LAPIC of a vCPU.
#[derive(Clone, Copy, Debug)]
pub enum Virtualization {
    /// AVIC of AMD.
    Avic(AvicModel),
    /// APICv of Intel.
    Apicv(ApicvModel),
}

/// The APIC virtualization of the machine's CPU model. A machine of an experiment may have both vendors'; a vCPU has
/// the control structure of one of them.
#[derive(Clone, Copy, Debug)]
pub struct ApicHardware {
    /// AMD's model.
    pub avic: Option<AvicModel>,
    /// Intel's model.
    pub apicv: Option<ApicvModel>,
}

impl ApicHardware {
    /// Whether the host emulates every LAPIC.
    #[inline]
    pub fn is_emulated(&self) -> bool {
        self.avic.is_none() && self.apicv.is_none()
    }

    /// The time that `cost` takes, which only APIC virtualization has.
    pub fn cost(&self, cost: Cost) -> Picos {
        let found = match cost {
            Cost::Doorbell => self.avic.map(|model| model.doorbell),
            Cost::AvicExit => self.avic.map(|model| model.exit),
            Cost::ApicvExit => self.apicv.map(|model| model.exit),
            _ => None,
        };
        found.unwrap_or(Picos::ZERO)
    }

    /// The hardware that virtualizes the LAPIC of `vcpu` at present, and in which mode. Returns `None` if the host
    /// emulates it.
    #[inline]
    pub fn of(&self, host: &Host, vcpu: VcpuId) -> Option<(Virtualization, ApicMode)> {
        let mode = |is_x2apic| if is_x2apic { ApicMode::Msrs } else { ApicMode::Page };
        if let Some(model) = self.avic
            && let Some(vmcb) = host.vmcb(vcpu).filter(|vmcb| vmcb.has_avic())
        {
            let mode = mode(vmcb.has_x2avic());
            return (mode == ApicMode::Msrs || host.maps_apic_page(vcpu))
                .then_some((Virtualization::Avic(model), mode));
        }
        let model = self.apicv?;
        let control = host.vmcs(vcpu).filter(|control| control.delivers_interrupts())?;
        let is_x2apic = control.secondary & VIRTUALIZE_X2APIC != 0;
        Some((Virtualization::Apicv(model), mode(is_x2apic)))
    }

    /// Runs `operation` with AVIC of `vcpu`; returns `None` if AVIC is off.
    pub fn with_avic<R>(
        &self,
        host: &Host,
        vcpu: VcpuId,
        operation: impl FnOnce(&Avic<'_, HostMemory<'_>>) -> R,
    ) -> Option<R> {
        let model = self.avic?;
        let memory = host.memory();
        let avic = Avic::new(&memory, host.vmcb(vcpu)?, model.hardware)?;
        Some(operation(&avic))
    }

    /// Runs `operation` with APICv of `vcpu`; returns `None` if APICv is off.
    pub fn with_apicv<R>(
        &self,
        host: &Host,
        vcpu: VcpuId,
        operation: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> R,
    ) -> Option<R> {
        self.apicv?;
        let memory = host.memory();
        let mut control = host.vmcs(vcpu)?;
        let result = operation(&mut Apicv::new(&memory, &mut control)?);
        host.set_guest_interrupt_status(vcpu, control.status);
        Some(result)
    }

    /// The vector that hardware makes `vcpu`, in guest mode, take as soon as interrupts are enabled.
    pub fn pending(&self, host: &Host, vcpu: VcpuId) -> Option<u8> {
        let by_avic = self.with_avic(host, vcpu, |avic| avic.pending()).flatten();
        by_avic.or_else(|| self.with_apicv(host, vcpu, |apicv| apicv.pending())?)
    }

    /// As [`ApicHardware::pending`], and the vCPU takes the vector.
    pub fn take(&self, host: &Host, vcpu: VcpuId) -> Option<u8> {
        let by_avic = self.with_avic(host, vcpu, |avic| avic.pending().inspect(|&vector| avic.take(vector)));
        by_avic
            .flatten()
            .or_else(|| self.with_apicv(host, vcpu, |apicv| apicv.pending().map(|_| apicv.take()))?)
    }
}
