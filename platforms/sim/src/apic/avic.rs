//! AVIC in virtual time.
//!
//! An IPI takes two turns: first its targets are found, then their IRRs are set. Time passes between the two, in which
//! a target may stop. A doorbell is on its way for a while, and has no effect on a pCPU that is not in guest mode.

use holdfast_abi::msr;
use holdfast_host::{Event, Exit, HardwareEvent, PcpuId, Run};
use holdfast_machine::avic::{Targets, WriteOutcome, accepts_wrmsr};
use holdfast_machine::{AvicModel, Picos};

use crate::books::cause::Cause;
use crate::books::happened::Happened;
use crate::core::clock::TimedEvent;
use crate::core::engine::Engine;
use crate::cpus::pcpu::Activity;
use crate::flows::flow::Handle;

impl Engine {
    /// A doorbell for `pcpu` sets out when `delay` has passed.
    pub fn send_doorbell(&mut self, pcpu: PcpuId, delay: Picos) {
        if let Some(model) = self.hardware.apic.avic {
            self.clock
                .plan_after(TimedEvent::Doorbell(pcpu), delay + model.doorbell_latency);
        }
    }

    /// A doorbell reaches `pcpu`.
    pub fn doorbell(&mut self, pcpu: PcpuId) {
        let Some(this) = self.pcpus.get(pcpu) else {
            return;
        };
        match (this.activity, this.next) {
            // The vCPU that it was for has left.
            (Activity::Guest(cpu), _) if self.vcpus[cpu].is_without_apic() => {}
            (Activity::Guest(vcpu), _) => {
                if let Some(vector) = self.take_from_hardware(vcpu) {
                    self.interrupt_in_guest(pcpu, vcpu, vector);
                }
            }
            // A polling loop sees the interrupt in memory.
            (Activity::Poll, _) | (Activity::Host, Run::Poll(_)) => {
                self.step_host(pcpu, Event::Hardware(HardwareEvent::Posted { pcpu }))
            }
            (_, Run::Guest { vcpu, .. }) => self.emit(&Happened::DoorbellMissed { vcpu }),
            _ => {}
        }
    }
}

impl Handle {
    /// A load from the LAPIC's page, at the flow's turn. Returns `None` if AVIC is off by now.
    pub fn avic_read(&self, model: AvicModel, offset: u32) -> Option<u32> {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let apic = engine.hardware.apic;
        match apic.with_avic(&engine.host, vcpu, |avic| avic.read(offset))? {
            Ok(value) => {
                engine.emit(&Happened::ApicAccessed { vcpu });
                self.spend(Cause::VirtualApic, model.register);
                Some(value)
            }
            Err(exit) => {
                self.exit(Exit::AvicNoAccel { exit, offset, value: 0 });
                let engine = self.engine();
                Some(engine.vcpus[engine.flows.current].replies.value as u32)
            }
        }
    }

    /// WRMSR in x2APIC mode. Returns `false` if the access has to leave the guest.
    pub fn avic_wrmsr(&self, model: AvicModel, msr: u32, value: u64) -> bool {
        if msr == msr::X2APIC_ICR {
            self.order();
            let engine = self.engine();
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let written = apic.with_avic(&engine.host, vcpu, |avic| avic.write_icr(value));
            return written.is_some_and(|icr| self.send_avic_ipi(model, icr));
        }
        let engine = self.engine();
        let passed = engine.host.passes_msr(engine.flows.current, msr, true);
        let Some(offset) = passed.filter(|&offset| accepts_wrmsr(offset, value)) else {
            return false;
        };
        self.order();
        self.avic_write(model, offset, value as u32)
    }

    /// A write in hardware, at the flow's turn. Returns `false` if AVIC is off by now.
    pub fn avic_write(&self, model: AvicModel, offset: u32, value: u32) -> bool {
        let engine = self.engine();
        let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
        let Some(outcome) = apic.with_avic(&engine.host, vcpu, |avic| avic.write(offset, value)) else {
            return false;
        };
        engine.emit(&Happened::ApicWritten {
            vcpu,
            offset: Some(offset),
            value,
        });
        match outcome {
            WriteOutcome::Done | WriteOutcome::Evaluate => {
                engine.emit(&Happened::ApicAccessed { vcpu });
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
        let engine = self.engine();
        let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
        let Some(found) = apic.with_avic(&engine.host, vcpu, |avic| avic.resolve(icr)) else {
            return false;
        };
        engine.emit(&Happened::IpiSent { vcpu });
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
        let engine = self.engine();
        let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
        let mut doorbells = 0;
        let clock = &mut engine.clock;
        let outcome = apic.with_avic(&engine.host, vcpu, |avic| {
            avic.post(targets, |host_id| {
                let latency = model.doorbell_latency + model.ipi.times(doorbells);
                clock.plan_after(TimedEvent::Doorbell(PcpuId(host_id)), latency);
                doorbells += 1;
            })
        });
        let Some(outcome) = outcome else { return false };
        engine.emit(&Happened::IpiPended {
            vcpu,
            targets,
            doorbells,
            exits: outcome.exit.is_some(),
        });
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
