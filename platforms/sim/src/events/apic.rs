//! Delivery of interrupts by hardware (AVIC, APICv) to vCPUs in guest mode.
//!
//! A doorbell is on its way for a while, and has no effect on a pCPU that is not in guest mode. A notification of APICv
//! is a host IPI: it is on its way for a while, and is taken without an exit in guest mode. If it arrives before an
//! entry, it is taken once the host's work is done. Elsewhere its handler does nothing, and has no cost.

use holdfast_abi::posted;
use holdfast_host::{Event, HardwareEvent, HostInterrupt, PcpuId, Run, VcpuId};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::clock::TimedEvent;
use crate::engine::Engine;
use crate::parts::pcpu::Activity;

impl Engine {
    /// The vector that `vcpu`, in guest mode, takes from hardware now, if it can take one.
    pub fn take_from_hardware(&mut self, vcpu: VcpuId) -> Option<u8> {
        let this = &self.vcpus[vcpu];
        if self.hardware.apic.is_emulated() || !this.interrupts.enabled || this.is_without_apic() {
            return None;
        }
        if this.interrupts.vector.is_some() {
            return None;
        }
        let vector = self.hardware.apic.take(&self.host, vcpu)?;
        self.emit(&Happened::Taken { vcpu, vector });
        Some(vector)
    }

    /// `vcpu`, in guest mode on `pcpu`, takes `vector` in the middle of what it does.
    pub fn interrupt_in_guest(&mut self, pcpu: PcpuId, vcpu: VcpuId, vector: u8) {
        self.suspend(vcpu);
        let now = self.clock.now;
        self.pcpus[pcpu].since = now;
        self.emit(&Happened::Continued { vcpu });
        let this = &mut self.vcpus[vcpu];
        this.interrupts.vector = Some(vector);
        let step = this.enter(pcpu, now);
        self.clock.set_activity(pcpu, step);
        self.emit(&Happened::Waits { vcpu });
    }

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
