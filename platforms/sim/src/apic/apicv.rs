//! Intel's APIC virtualization in virtual time: a guest's LAPIC access goes through the hardware first, and leaves the guest only
//! where hardware does.
//!
//! A notification is a host IPI: under way for a while, taken without an exit in guest mode, and once the host's work is
//! done if it comes before an entry. Elsewhere its handler does nothing, and is not costed.

use holdfast_abi::posted;
use holdfast_host::{Event, Exit, HostInterrupt, HostMemory, PcpuId, VcpuId};
use holdfast_machine::apicv::{Apicv, Exit as ApicvExit, WriteOutcome};
use holdfast_machine::{ApicvModel, Key, Picos};

use crate::books::cause::Cause;
use crate::core::engine::{CLASS_INTERRUPT, Engine, Spare};
use crate::cpus::pcpu::Activity;
use crate::flows::flow::Handle;

/// What APIC virtualization did for a guest without an exit.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApicvCounts {
    /// Register accesses.
    pub accesses: u64,
    /// IPIs that hardware sent.
    pub ipis_without_exit: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Notifications that hardware sent.
    pub notifications: u64,
    /// Notifications that were taken in guest mode.
    pub notified: u64,
}

impl ApicvCounts {
    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("apicv_accesses", self.accesses),
            ("apicv_ipis_without_exit", self.ipis_without_exit),
            ("apicv_interrupts", self.interrupts),
            ("apicv_notifications_by_hardware", self.notifications),
            ("apicv_notified_in_guest", self.notified),
        ]
    }
}

impl Engine {
    /// Has `operation` use APIC virtualization of `vcpu`; `None` if it is off.
    fn with_apicv<R>(
        &self,
        vcpu: u32,
        operation: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> R,
    ) -> Option<(ApicvModel, R)> {
        let part = self.apicv?;
        let memory = self.host.memory();
        let mut control = self.host.vmcs(VcpuId(vcpu))?;
        let result = operation(&mut Apicv::new(&memory, &mut control)?);
        self.host.set_guest_interrupt_status(VcpuId(vcpu), control.status);
        Some((part, result))
    }

    /// The vector that `vcpu`, in guest mode with interrupts enabled, takes now.
    pub fn evaluate_intel(&mut self, vcpu: u32) -> Option<u8> {
        let take = |apic: &mut Apicv<'_, HostMemory<'_>>| apic.pending().map(|_| apic.take());
        let vector = self.with_apicv(vcpu, take)?.1?;
        self.hash
            .add(self.now.0 ^ u64::from(vcpu) << 40 ^ u64::from(vector) << 56);
        self.vm_of(vcpu).apicv.interrupts += 1;
        self.record_inject(vcpu, vector);
        self.audit_taken(vcpu, vector);
        Some(vector)
    }

    /// The vector that is pending for `vcpu`, in guest mode.
    pub fn pending_intel(&self, vcpu: u32) -> Option<u8> {
        self.with_apicv(vcpu, |apic| apic.pending())?.1
    }

    /// An interrupt with `vector`, of those about posted interrupts, sets out for `pcpu`.
    pub fn notify(&mut self, pcpu: u32, vector: u8) {
        let processing = self.apicv.map_or(Picos::ZERO, |part| part.processing);
        let at = self.now + self.costs.ipi_latency + processing;
        let slot = self.take_spare_slot(Spare::Notification(pcpu, vector));
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// It reaches `pcpu`.
    pub fn notification(&mut self, pcpu: u32, vector: u8) {
        if vector == posted::WAKEUP_VECTOR {
            return self.interrupt(pcpu, HostInterrupt::PostedWakeup);
        }
        match self.pcpus[pcpu as usize].activity {
            // The vCPU that it was for has left: the host's handler of the vector does nothing.
            Activity::Guest(cpu) if self.vcpus[cpu as usize].native => {}
            Activity::Guest(vcpu) => {
                let Some((_, true)) = self.with_apicv(vcpu, |apic| apic.notified(vector)) else {
                    return;
                };
                self.vm_of(vcpu).apicv.notified += 1;
                if let Some(vector) = self.evaluate(vcpu) {
                    self.interrupt_guest(pcpu, vcpu, vector);
                }
            }
            Activity::Host => self.pcpus[pcpu as usize].notified = true,
            Activity::Poll => {
                let pcpu = PcpuId(pcpu);
                self.step_host(pcpu.0, Event::Posted { pcpu });
            }
            Activity::Idle | Activity::Task(_) => {}
        }
    }

    /// `vcpu` is entered on `pcpu`, where a notification may have waited for that.
    pub fn take_notification(&mut self, pcpu: u32, vcpu: u32) {
        self.with_apicv(vcpu, |apic| apic.enter());
        if std::mem::take(&mut self.pcpus[pcpu as usize].notified) {
            self.with_apicv(vcpu, |apic| apic.notified(posted::NOTIFICATION_VECTOR));
        }
    }
}

impl Handle {
    /// Whether APIC virtualization is on; and whether the LAPIC is in x2APIC mode.
    #[inline]
    fn has_apicv(&self) -> Option<bool> {
        let engine = self.engine();
        engine.apicv?;
        let vcpu = engine.current;
        if engine.vcpus[vcpu as usize].native {
            return None;
        }
        let control = engine.host.vmcs(VcpuId(vcpu))?;
        control
            .delivers_interrupts()
            .then_some(control.secondary & holdfast_abi::vmcs::VIRTUALIZE_X2APIC != 0)
    }

    /// A store to the LAPIC's page; false if it is an exit as ever.
    pub fn apicv_write(&self, offset: u32, value: u32) -> bool {
        if self.has_apicv() != Some(false) {
            return false;
        }
        self.order();
        self.write_intel(|apic| Some(apic.write(offset, value)), value)
    }

    /// A load from it.
    pub fn apicv_read(&self, offset: u32) -> Option<u32> {
        if self.has_apicv()? {
            return None;
        }
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let (part, read) = engine.with_apicv(vcpu, |apic| apic.read(offset))?;
        let value = read.ok()?;
        engine.vm_of(vcpu).apicv.accesses += 1;
        self.spend(Cause::VirtualApic, part.register);
        Some(value)
    }

    /// WRMSR; false if it is to leave the guest.
    pub fn apicv_wrmsr(&self, msr: u32, value: u64) -> bool {
        if self.has_apicv() != Some(true) {
            return false;
        }
        let engine = self.engine();
        let Some(offset) = engine.host.passes_msr(VcpuId(engine.current), msr, true) else {
            return false;
        };
        self.order();
        self.write_intel(|apic| apic.write_msr(offset, value), value as u32)
    }

    /// RDMSR; `None` if it is to leave the guest.
    pub fn apicv_rdmsr(&self, msr: u32) -> Option<u64> {
        if !self.has_apicv()? {
            return None;
        }
        let engine = self.engine();
        let offset = engine.host.passes_msr(VcpuId(engine.current), msr, false)?;
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let (part, value) = engine.with_apicv(vcpu, |apic| apic.read_msr(offset))?;
        let value = value?;
        engine.vm_of(vcpu).apicv.accesses += 1;
        self.spend(Cause::VirtualApic, part.register);
        Some(value)
    }

    /// A write in hardware, at the flow's turn; false if APIC virtualization is off by now, or the write is an exit as ever.
    fn write_intel(
        &self,
        write: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> Option<WriteOutcome>,
        value: u32,
    ) -> bool {
        let engine = self.engine();
        let vcpu = engine.current;
        let Some((part, Some(written))) = engine.with_apicv(vcpu, write) else {
            return false;
        };
        engine.hash.add(engine.now.0 ^ u64::from(vcpu) << 28 ^ u64::from(value));
        match written {
            WriteOutcome::Done => self.spend(Cause::VirtualApic, part.register),
            WriteOutcome::Evaluate => {
                self.spend(Cause::VirtualApic, part.register);
                self.take_pending();
            }
            WriteOutcome::Posted(notification) => {
                engine.audit_posted_intel(vcpu);
                let counts = &mut engine.vm_of(vcpu).apicv;
                counts.ipis_without_exit += 1;
                counts.notifications += u64::from(notification.is_some());
                if let Some(notification) = notification {
                    engine.notify(notification.destination, notification.vector);
                }
                self.spend(Cause::VirtualApic, part.register + part.ipi);
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
        let engine = self.engine();
        engine.vm_of(vcpu).apicv.accesses += 1;
        true
    }
}
