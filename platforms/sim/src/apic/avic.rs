//! AVIC in virtual time: a guest's LAPIC access goes through the hardware first, and leaves the guest only where hardware does.
//!
//! An IPI takes two turns: its targets are found, then their IRRs are set; between them time passes, in which a target may
//! stop. A doorbell is under way for a while, and is lost on a pCPU that is not in guest mode.

use holdfast_abi::msr;
use holdfast_host::{Event, Exit, HostMemory, PcpuId, Run, VcpuId};
use holdfast_machine::avic::{Avic, Targets, WriteOutcome, accepts_wrmsr};
use holdfast_machine::{AvicModel, Key, Picos};

use crate::books::cause::Cause;
use crate::core::engine::{CLASS_ACTIVITY, CLASS_INTERRUPT, Engine, Spare};
use crate::cpus::pcpu::Activity;
use crate::flows::flow::Handle;

/// What AVIC did for a guest without an exit.
#[derive(Clone, Copy, Debug, Default)]
pub struct AvicCounts {
    /// Register accesses.
    pub accesses: u64,
    /// IPIs sent, exits or not.
    pub ipis: u64,
    /// IPIs that led to no exit.
    pub ipis_without_exit: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Doorbells that hardware rang.
    pub doorbells: u64,
    /// Doorbells, by hardware or software, that found their pCPU out of guest mode.
    pub doorbells_in_vain: u64,
}

impl AvicCounts {
    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        [
            ("avic_accesses", self.accesses),
            ("avic_ipis", self.ipis),
            ("avic_ipis_without_exit", self.ipis_without_exit),
            ("avic_interrupts", self.interrupts),
            ("avic_doorbells_by_hardware", self.doorbells),
            ("avic_doorbells_in_vain", self.doorbells_in_vain),
        ]
    }
}

impl Engine {
    /// What the part has, if the LAPIC of `vcpu` is virtualised at present; and whether in x2APIC mode.
    #[inline]
    fn avic_part(&self, vcpu: u32) -> Option<(AvicModel, bool)> {
        let part = self.avic?;
        if self.vcpus[vcpu as usize].native {
            return None;
        }
        let vmcb = self.host.vmcb(VcpuId(vcpu))?;
        vmcb.has_avic().then(|| (part, vmcb.has_x2avic()))
    }

    /// Has `operation` use AVIC of `vcpu`; `None` if it is off.
    fn with_avic<R>(&self, vcpu: u32, operation: impl FnOnce(&Avic<'_, HostMemory<'_>>) -> R) -> Option<R> {
        let part = self.avic?;
        let memory = self.host.memory();
        let avic = Avic::new(&memory, self.host.vmcb(VcpuId(vcpu))?, part.hardware)?;
        Some(operation(&avic))
    }

    /// The vector that `vcpu`, in guest mode, takes now, if it can take one.
    pub fn evaluate(&mut self, vcpu: u32) -> Option<u8> {
        if self.avic.is_none() && self.apicv.is_none() {
            return None;
        }
        let this = &self.vcpus[vcpu as usize];
        if !this.irqs_enabled || this.inject.is_some() || this.native {
            return None;
        }
        let by_avic = self.with_avic(vcpu, |avic| avic.pending().inspect(|&vector| avic.take(vector)));
        let Some(vector) = by_avic.flatten() else {
            return self.evaluate_intel(vcpu);
        };
        self.hash
            .add(self.now.0 ^ u64::from(vcpu) << 40 ^ u64::from(vector) << 56);
        self.vm_of(vcpu).avic.interrupts += 1;
        self.record_inject(vcpu, vector);
        self.audit_taken(vcpu, vector);
        Some(vector)
    }

    /// The vector that hardware has `vcpu` take as soon as interrupts are enabled.
    pub fn pending_in_hardware(&self, vcpu: u32) -> Option<u8> {
        let by_avic = self.with_avic(vcpu, |avic| avic.pending()).flatten();
        by_avic.or_else(|| self.pending_intel(vcpu))
    }

    /// A doorbell for `pcpu` sets out.
    pub fn ring(&mut self, pcpu: u32) {
        let Some(part) = self.avic else { return };
        let at = self.now + part.doorbell_latency;
        let spare = Spare::Doorbell(pcpu);
        let slot = self.take_spare_slot(spare);
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// A doorbell reaches `pcpu`.
    pub fn doorbell(&mut self, pcpu: u32) {
        let Some(this) = self.pcpus.get(pcpu as usize) else {
            return;
        };
        match (this.activity, this.next) {
            // The vCPU that it was for has left.
            (Activity::Guest(cpu), _) if self.vcpus[cpu as usize].native => {}
            (Activity::Guest(vcpu), _) => {
                if let Some(vector) = self.evaluate(vcpu) {
                    self.interrupt_guest(pcpu, vcpu, vector);
                }
            }
            // A polling loop sees the interrupt in memory.
            (Activity::Poll, _) | (Activity::Host, Run::Poll(_)) => {
                let pcpu = PcpuId(pcpu);
                self.step_host(pcpu.0, Event::Posted { pcpu });
            }
            (_, Run::Guest { vcpu, .. }) => self.vm_of(vcpu.0).avic.doorbells_in_vain += 1,
            _ => {}
        }
    }

    /// `vcpu`, in guest mode on `pcpu`, takes `vector` in the middle of what it does.
    pub fn interrupt_guest(&mut self, pcpu: u32, vcpu: u32, vector: u8) {
        self.suspend(vcpu);
        let now = self.now;
        self.pcpus[pcpu as usize].since = now;
        let this = &mut self.vcpus[vcpu as usize];
        this.ledger.enter_until(this.out_cause, now);
        this.pcpu = Some(pcpu);
        this.clock = now + this.remaining;
        this.remaining = Picos::ZERO;
        this.inject = Some(vector);
        self.queue.set(pcpu, Key::new(now, CLASS_ACTIVITY, pcpu));
        self.mark(vcpu);
    }
}

impl Handle {
    /// A store to the LAPIC's page.
    pub fn apic_write(&self, offset: u32, value: u32) {
        let engine = self.engine();
        if engine.avic_part(engine.current).is_none_or(|(_, x2apic)| x2apic) {
            if !self.apicv_write(offset, value) {
                self.exit(Exit::ApicWrite { offset, value });
            }
            return;
        }
        self.order();
        if !self.avic_write(offset, value) {
            self.exit(Exit::ApicWrite { offset, value });
        }
    }

    /// A load from it, unless hardware leaves that to the host.
    pub fn apic_read(&self, offset: u32) -> Option<u32> {
        let engine = self.engine();
        let Some((part, _)) = engine.avic_part(engine.current).filter(|(_, x2apic)| !x2apic) else {
            return self.apicv_read(offset);
        };
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let result = engine.with_avic(vcpu, |avic| avic.read(offset))?;
        match result {
            Ok(value) => {
                engine.vm_of(vcpu).avic.accesses += 1;
                self.spend(Cause::VirtualApic, part.register);
                Some(value)
            }
            Err(exit) => {
                self.exit(Exit::AvicNoAccel { exit, offset, value: 0 });
                let engine = self.engine();
                Some(engine.vcpus[engine.current as usize].reply as u32)
            }
        }
    }

    /// WRMSR; false if it is to leave the guest.
    pub fn avic_wrmsr(&self, msr: u32, value: u64) -> bool {
        let engine = self.engine();
        if engine.avic_part(engine.current).is_none_or(|(_, x2apic)| !x2apic) {
            return false;
        }
        if msr == msr::X2APIC_ICR {
            self.order();
            let engine = self.engine();
            let written = engine.with_avic(engine.current, |avic| avic.write_icr(value));
            return written.is_some_and(|icr| self.send(icr));
        }
        let passed = engine.host.passes_msr(VcpuId(engine.current), msr, true);
        let Some(offset) = passed.filter(|&offset| accepts_wrmsr(offset, value)) else {
            return false;
        };
        self.order();
        self.avic_write(offset, value as u32)
    }

    /// RDMSR; `None` if it is to leave the guest.
    pub fn avic_rdmsr(&self, msr: u32) -> Option<u64> {
        let engine = self.engine();
        let (part, _) = engine.avic_part(engine.current).filter(|(_, x2apic)| *x2apic)?;
        let offset = engine.host.passes_msr(VcpuId(engine.current), msr, false)?;
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let value = engine.with_avic(vcpu, |avic| avic.read_msr(offset))??;
        engine.vm_of(vcpu).avic.accesses += 1;
        self.spend(Cause::VirtualApic, part.register);
        Some(value)
    }

    /// A write in hardware, at the flow's turn; false if AVIC is off by now.
    fn avic_write(&self, offset: u32, value: u32) -> bool {
        let engine = self.engine();
        let vcpu = engine.current;
        let Some(written) = engine.with_avic(vcpu, |avic| avic.write(offset, value)) else {
            return false;
        };
        engine
            .hash
            .add(engine.now.0 ^ u64::from(offset) << 44 ^ u64::from(vcpu) << 28 ^ u64::from(value));
        let register = engine.avic.map_or(Picos::ZERO, |part| part.register);
        match written {
            WriteOutcome::Done | WriteOutcome::Evaluate => {
                engine.vm_of(vcpu).avic.accesses += 1;
                self.spend(Cause::VirtualApic, register);
                if written == WriteOutcome::Evaluate {
                    self.take_pending();
                }
            }
            WriteOutcome::Send(icr) => {
                self.spend(Cause::VirtualApic, register);
                return self.send(icr);
            }
            WriteOutcome::Exit(exit) => self.exit(Exit::AvicNoAccel { exit, offset, value }),
        }
        true
    }

    /// An IPI. False if AVIC has been switched off meanwhile, and nothing was sent.
    fn send(&self, icr: u64) -> bool {
        let engine = self.engine();
        let Some(found) = engine.with_avic(engine.current, |avic| avic.resolve(icr)) else {
            return false;
        };
        let vcpu = engine.current;
        engine.vm_of(vcpu).avic.ipis += 1;
        let targets = match found {
            Ok(targets) => targets,
            Err(exit) => {
                self.exit(Exit::AvicIncompleteIpi(exit));
                return true;
            }
        };
        let each = engine.avic.map_or(Picos::ZERO, |part| part.ipi);
        self.spend(Cause::VirtualApic, each.times(u64::from(targets.count())));
        self.order();
        self.post(&targets)
    }

    fn post(&self, targets: &Targets) -> bool {
        let engine = self.engine();
        let vcpu = engine.current;
        let mut rung = std::mem::take(&mut engine.rung);
        let posted = engine.with_avic(vcpu, |avic| avic.post(targets, |host_id| rung.push(host_id)));
        engine.vm_of(vcpu).avic.doorbells += rung.len() as u64;
        rung.drain(..).for_each(|pcpu| engine.ring(pcpu));
        engine.rung = rung;
        let Some(posted) = posted else { return false };
        engine.audit_posted(vcpu, targets);
        match posted.exit {
            Some(exit) => self.exit(Exit::AvicIncompleteIpi(exit)),
            None => engine.vm_of(vcpu).avic.ipis_without_exit += 1,
        }
        if posted.evaluate {
            self.take_pending();
        }
        true
    }

    /// RFLAGS.IF is set from now on.
    #[inline]
    pub fn interrupts_enabled(&self) {
        let engine = self.engine();
        if engine.avic.is_none() && engine.apicv.is_none() {
            return;
        }
        let vcpu = engine.current;
        if engine.vcpus[vcpu as usize].native {
            return;
        }
        if engine.pending_in_hardware(vcpu).is_some() {
            self.take_pending();
        }
    }

    /// Takes what is pending, if it can be taken.
    pub fn take_pending(&self) {
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        if let Some(vector) = engine.evaluate(vcpu) {
            engine.vcpus[vcpu as usize].inject = Some(vector);
            self.continued();
        }
    }
}
