//! A guest's accesses to its LAPIC under AVIC.
//!
//! An IPI takes two turns: first its targets are found, then their IRRs are set. Time passes between the two, in which
//! a target may stop.

use holdfast_abi::msr;
use holdfast_host::{Exit, PcpuId};
use holdfast_machine::AvicModel;
use holdfast_machine::avic::{Targets, WriteOutcome, accepts_wrmsr};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::core::clock::TimedEvent;
use crate::engine::handle::Handle;

impl Handle {
    /// A load from the LAPIC's page, at the flow's turn. Returns `None` if AVIC is off by now.
    pub fn avic_read(&self, model: AvicModel, offset: u32) -> Option<u32> {
        let found = self.with(|engine| {
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let found = apic.with_avic(&engine.host, vcpu, |avic| avic.read(offset))?;
            if found.is_ok() {
                engine.emit(&Happened::ApicAccessed { vcpu });
            }
            Some(found)
        })?;
        match found {
            Ok(value) => {
                self.spend(Cause::VirtualApic, model.register);
                Some(value)
            }
            Err(exit) => {
                self.exit(Exit::AvicNoAccel { exit, offset, value: 0 });
                Some(self.with(|engine| engine.current().replies.value as u32))
            }
        }
    }

    /// WRMSR in x2APIC mode. Returns `false` if the access has to leave the guest.
    pub fn avic_wrmsr(&self, model: AvicModel, msr: u32, value: u64) -> bool {
        if msr == msr::X2APIC_ICR {
            self.order();
            let written = self.with(|engine| {
                let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
                apic.with_avic(&engine.host, vcpu, |avic| avic.write_icr(value))
            });
            return written.is_some_and(|icr| self.send_avic_ipi(model, icr));
        }
        let passed = self.with(|engine| engine.host.passes_msr(engine.flows.current, msr, true));
        let Some(offset) = passed.filter(|&offset| accepts_wrmsr(offset, value)) else {
            return false;
        };
        self.order();
        self.avic_write(model, offset, value as u32)
    }

    /// A write in hardware, at the flow's turn. Returns `false` if AVIC is off by now.
    pub fn avic_write(&self, model: AvicModel, offset: u32, value: u32) -> bool {
        let written = self.with(|engine| {
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let outcome = apic.with_avic(&engine.host, vcpu, |avic| avic.write(offset, value))?;
            engine.emit(&Happened::ApicWritten {
                vcpu,
                offset: Some(offset),
                value,
            });
            Some(outcome)
        });
        let Some(outcome) = written else {
            return false;
        };
        match outcome {
            WriteOutcome::Done | WriteOutcome::Evaluate => {
                self.emit_access();
                self.spend(Cause::VirtualApic, model.register);
                if outcome == WriteOutcome::Evaluate {
                    self.take_pending();
                }
            }
            WriteOutcome::Send(icr) => {
                self.spend(Cause::VirtualApic, model.register);
                return self.send_avic_ipi(model, icr);
            }
            WriteOutcome::Exit(exit) => self.exit(Exit::AvicNoAccel { exit, offset, value }),
        }
        true
    }

    /// Sends an IPI. Returns `false` if AVIC has been switched off meanwhile; then nothing was sent.
    fn send_avic_ipi(&self, model: AvicModel, icr: u64) -> bool {
        let resolved = self.with(|engine| {
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let found = apic.with_avic(&engine.host, vcpu, |avic| avic.resolve(icr))?;
            engine.emit(&Happened::IpiSent { vcpu });
            Some(found)
        });
        let Some(found) = resolved else {
            return false;
        };
        let targets = match found {
            Ok(targets) => targets,
            Err(exit) => {
                self.exit(Exit::AvicIncompleteIpi(exit));
                return true;
            }
        };
        self.pend(model, &targets)
    }

    /// Pends an IPI for `targets` and rings the doorbells, one target after another: each doorbell sets out when the
    /// hardware is done with its target. Returns `false` if AVIC has been switched off meanwhile.
    ///
    /// All requests are set when the first one is. A target that is entered meanwhile takes its interrupt early.
    fn pend(&self, model: AvicModel, targets: &Targets) -> bool {
        // Without a target the hardware has nothing to do.
        let first = u64::from(targets.count().min(1));
        let others = u64::from(targets.count()) - first;
        self.spend(Cause::VirtualApic, model.ipi.times(first));
        self.order();
        let posted = self.with(|engine| {
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let mut doorbells = 0;
            let clock = &mut engine.clock;
            let outcome = apic.with_avic(&engine.host, vcpu, |avic| {
                avic.post(targets, |host_id| {
                    let latency = model.doorbell_latency + model.ipi.times(doorbells);
                    clock.plan_after(TimedEvent::Doorbell(PcpuId(host_id)), latency);
                    doorbells += 1;
                })
            })?;
            engine.emit(&Happened::IpiPended {
                vcpu,
                targets,
                doorbells,
                exits: outcome.exit.is_some(),
            });
            Some(outcome)
        });
        let Some(outcome) = posted else { return false };
        self.spend(Cause::VirtualApic, model.ipi.times(others));
        if let Some(exit) = outcome.exit {
            self.exit(Exit::AvicIncompleteIpi(exit));
        }
        if outcome.evaluate {
            self.take_pending();
        }
        true
    }
}
