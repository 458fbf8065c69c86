//! The door to APIC virtualization: a guest's LAPIC access goes through the hardware first, and leaves the guest only
//! where hardware leaves it. Callers do not name a vendor.

use holdfast_host::Exit;

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::handle::Handle;
use crate::parts::apic::{ApicMode, Virtualization};

impl Handle {
    /// The hardware that virtualizes the LAPIC of the executing vCPU, if it does so in `mode`.
    #[inline]
    fn apic_in(&self, mode: ApicMode) -> Option<Virtualization> {
        self.with(|engine| {
            let vcpu = engine.flows.current;
            if engine.vcpus[vcpu].is_without_apic() {
                return None;
            }
            let (apic, found) = engine.hardware.apic.of(&engine.host, vcpu)?;
            (found == mode).then_some(apic)
        })
    }

    /// A store to the LAPIC's page.
    pub fn apic_write(&self, offset: u32, value: u32) {
        let is_done = self.apic_in(ApicMode::Page).is_some_and(|apic| {
            self.order();
            match apic {
                Virtualization::Avic(model) => self.avic_write(model, offset, value),
                Virtualization::Apicv(model) => {
                    self.apicv_write(model, value, |apicv| Some(apicv.write(offset, value)))
                }
            }
        });
        if !is_done {
            self.exit(Exit::ApicWrite { offset, value });
        }
    }

    /// A load from the LAPIC's page. Returns `None` if the access has to leave the guest.
    pub fn apic_read(&self, offset: u32) -> Option<u32> {
        let apic = self.apic_in(ApicMode::Page)?;
        self.order();
        match apic {
            Virtualization::Avic(model) => self.avic_read(model, offset),
            Virtualization::Apicv(model) => {
                let value = self.with(|engine| {
                    let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
                    apic.with_apicv(&engine.host, vcpu, |apicv| apicv.read(offset))?.ok()
                })?;
                self.accessed(model.register);
                Some(value)
            }
        }
    }

    /// WRMSR. Returns `false` if the access has to leave the guest.
    pub fn apic_wrmsr(&self, msr: u32, value: u64) -> bool {
        match self.apic_in(ApicMode::Msrs) {
            None => false,
            Some(Virtualization::Avic(model)) => self.avic_wrmsr(model, msr, value),
            Some(Virtualization::Apicv(model)) => {
                let passed = self.with(|engine| engine.host.passes_msr(engine.flows.current, msr, true));
                let Some(offset) = passed else {
                    return false;
                };
                self.order();
                self.apicv_write(model, value as u32, |apicv| apicv.write_msr(offset, value))
            }
        }
    }

    /// RDMSR. Returns `None` if the access has to leave the guest.
    pub fn apic_rdmsr(&self, msr: u32) -> Option<u64> {
        let apic = self.apic_in(ApicMode::Msrs)?;
        let offset = self.with(|engine| engine.host.passes_msr(engine.flows.current, msr, false))?;
        self.order();
        let (value, register) = self.with(|engine| {
            let (hardware, vcpu) = (engine.hardware.apic, engine.flows.current);
            match apic {
                Virtualization::Avic(model) => {
                    let value = hardware.with_avic(&engine.host, vcpu, |avic| avic.read_msr(offset))??;
                    Some((value, model.register))
                }
                Virtualization::Apicv(model) => {
                    let value = hardware.with_apicv(&engine.host, vcpu, |apicv| apicv.read_msr(offset))??;
                    Some((value, model.register))
                }
            }
        })?;
        self.accessed(register);
        Some(value)
    }

    /// Hardware has executed an access of the executing vCPU to its LAPIC, which takes `register`.
    fn accessed(&self, register: holdfast_machine::Picos) {
        self.emit_access();
        self.spend(Cause::VirtualApic, register);
    }

    /// The executing vCPU has accessed its LAPIC.
    pub fn emit_access(&self) {
        self.with(|engine| {
            let vcpu = engine.flows.current;
            engine.emit(&Happened::ApicAccessed { vcpu });
        });
    }

    /// RFLAGS.IF is set from now on.
    #[inline]
    pub fn interrupts_enabled(&self) {
        let is_pending = self.with(|engine| {
            let vcpu = engine.flows.current;
            let apic = &engine.hardware.apic;
            let has_none = apic.is_emulated() || engine.vcpus[vcpu].is_without_apic();
            !has_none && apic.pending(&engine.host, vcpu).is_some()
        });
        if is_pending {
            self.take_pending();
        }
    }

    /// HLT of the executing vCPU with interrupts enabled: under the idle HLT intercept it does not exit if an interrupt
    /// is pending, which the vCPU takes now. Returns whether that is so.
    pub fn takes_instead_of_halt(&self) -> bool {
        let skips = self.with(|engine| {
            let vcpu = engine.flows.current;
            let (apic, host) = (&engine.hardware.apic, &engine.host);
            let by_idle_hlt =
                !engine.vcpus[vcpu].is_without_apic() && host.vmcb(vcpu).is_some_and(|vmcb| vmcb.has_idle_hlt());
            let skips = by_idle_hlt && apic.pending(host, vcpu).is_some();
            if skips {
                engine.emit(&Happened::HaltSkipped { vcpu });
            }
            skips
        });
        if skips {
            self.take_pending();
        }
        skips
    }

    /// Takes the vector that is pending in hardware, if it can be taken.
    pub fn take_pending(&self) {
        self.order();
        let takes = self.with(|engine| {
            let vcpu = engine.flows.current;
            let vector = engine.take_from_hardware(vcpu);
            if vector.is_some() {
                engine.vcpus[vcpu].interrupts.vector = vector;
            }
            vector.is_some()
        });
        if takes {
            self.continued();
        }
    }
}
