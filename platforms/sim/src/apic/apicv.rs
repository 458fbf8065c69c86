//! APICv in virtual time.
//!
//! A notification is a host IPI: it is on its way for a while, and is taken without an exit in guest mode. If it
//! arrives before an entry, it is taken once the host's work is done. Elsewhere its handler does nothing, and has no
//! cost.

use holdfast_abi::posted;
use holdfast_host::{Event, Exit, HardwareEvent, HostInterrupt, HostMemory, PcpuId, VcpuId};
use holdfast_machine::apicv::{Apicv, Exit as ApicvExit, WriteOutcome};
use holdfast_machine::{ApicvModel, Picos};

use crate::books::cause::Cause;
use crate::books::happened::Happened;
use crate::core::clock::TimedEvent;
use crate::core::engine::Engine;
use crate::cpus::pcpu::Activity;
use crate::flows::flow::Handle;

impl Engine {
    /// An interrupt with `vector`, one of the two vectors of posted interrupts, sets out for `pcpu` when `delay` has
    /// passed.
    pub fn send_notification(&mut self, pcpu: PcpuId, vector: u8, delay: Picos) {
        let model = self.hardware.apic.apicv;
        let processing = model.map_or(Picos::ZERO, |model| model.processing);
        let after = delay + self.hardware.costs.ipi_latency + processing;
        self.clock.plan_after(TimedEvent::Notification(pcpu, vector), after);
    }

    /// Such an interrupt reaches `pcpu`.
    pub fn notification(&mut self, pcpu: PcpuId, vector: u8) {
        if vector == posted::WAKEUP_VECTOR {
            return self.interrupt(pcpu, HostInterrupt::PostedWakeup);
        }
        match self.pcpus[pcpu].activity {
            // The vCPU that it was for has left: the host's handler of the vector does nothing.
            Activity::Guest(cpu) if self.vcpus[cpu].native => {}
            Activity::Guest(vcpu) => {
                if !self.is_notified(vcpu, vector) {
                    // APICv of the vCPU is off: the vector is an interrupt like any other, and the host has no work
                    // for it.
                    return self.interrupt(pcpu, HostInterrupt::Device(vector));
                }
                self.emit(&Happened::Notified { vcpu });
                if let Some(vector) = self.take_from_hardware(vcpu) {
                    self.interrupt_in_guest(pcpu, vcpu, vector);
                }
            }
            Activity::Host => self.pcpus[pcpu].held.notified = true,
            Activity::Poll => self.step_host(pcpu, Event::Hardware(HardwareEvent::Posted { pcpu })),
            Activity::Idle | Activity::Task(_) => {}
        }
    }

    /// `vcpu` takes the notification `vector` in guest mode. Returns whether its hardware recognizes the vector.
    fn is_notified(&mut self, vcpu: VcpuId, vector: u8) -> bool {
        let apic = self.hardware.apic;
        !self.vcpus[vcpu].is_without_apic()
            && apic.with_apicv(&self.host, vcpu, |apicv| apicv.notified(vector)) == Some(true)
    }

    /// `vcpu` is entered on `pcpu`, where a notification may have waited for that.
    pub fn take_notification(&mut self, pcpu: PcpuId, vcpu: VcpuId) {
        if self.vcpus[vcpu].is_without_apic() {
            return;
        }
        self.hardware.apic.with_apicv(&self.host, vcpu, |apicv| apicv.enter());
        if std::mem::take(&mut self.pcpus[pcpu].held.notified) {
            self.is_notified(vcpu, posted::NOTIFICATION_VECTOR);
        }
    }
}

impl Handle {
    /// `write` of `value` in hardware, at the flow's turn. Returns `false` if APICv is off by now, or the write has to
    /// leave the guest as without APICv.
    pub fn apicv_write(
        &self,
        model: ApicvModel,
        value: u32,
        write: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> Option<WriteOutcome>,
    ) -> bool {
        let engine = self.engine();
        let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
        let Some(Some(outcome)) = apic.with_apicv(&engine.host, vcpu, write) else {
            return false;
        };
        engine.emit(&Happened::ApicWritten {
            vcpu,
            offset: None,
            value,
        });
        match outcome {
            WriteOutcome::Done => self.spend(Cause::VirtualApic, model.register),
            WriteOutcome::Evaluate => {
                self.spend(Cause::VirtualApic, model.register);
                self.take_pending();
            }
            WriteOutcome::Posted(notification) => {
                let notified = notification.is_some();
                engine.emit(&Happened::IpiPosted { vcpu, notified });
                let spent = model.register + model.ipi;
                if let Some(notification) = notification {
                    engine.send_notification(PcpuId(notification.destination), notification.vector, spent);
                }
                self.spend(Cause::VirtualApic, spent);
                return true;
            }
            WriteOutcome::Exit(ApicvExit::Access { .. }) => return false,
            WriteOutcome::Exit(ApicvExit::Write { offset }) => {
                self.exit(Exit::ApicvWrite { offset, value });
                return true;
            }
            WriteOutcome::Exit(ApicvExit::Eoi(vector)) => {
                self.exit(Exit::ApicvEoi { vector });
                return true;
            }
        }
        self.engine().emit(&Happened::ApicAccessed { vcpu });
        true
    }
}
