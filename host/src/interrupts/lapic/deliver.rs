//! Delivery of interrupts to LAPICs: choosing the receivers, and accepting (docs/spec/interrupts.md, "Emulated LAPIC").
//!
//! - **Only its own VM**: receivers are searched among the VM's own LAPICs, whatever the guest names.
//! - **Cost follows the receivers**: all LAPICs are searched only if the ID does not determine the index.

use core::ops::Range;

use holdfast_abi::lapic as reg;
use holdfast_abi::lapic::DeliveryMode;

use super::message::{Message, Origin};
use crate::boundary::{Command, Cost, VcpuId, VmId};
use crate::step::Step;
use crate::wings::Wings;

impl Wings {
    /// Delivers `message` within `vm`. Returns how many LAPICs have accepted it.
    pub(crate) fn deliver(&mut self, vm: VmId, message: &Message, step: &mut Step<'_>) -> u32 {
        let candidates = self.candidates(vm, message);
        if message.goes_to_one() {
            let receiver = self.lowest_priority(vm, candidates, message);
            return receiver.map_or(0, |to| u32::from(self.accept(vm, to, message, step)));
        }
        let mut accepted = 0;
        for to in candidates {
            if self.is_addressed(vm, to, message) {
                accepted += u32::from(self.accept(vm, to, message, step));
            }
        }
        accepted
    }

    /// Returns a range of indexes that contains all receivers of `message`.
    pub(crate) fn candidates(&self, vm: VmId, message: &Message) -> Range<u32> {
        let this = &self.guests.vms[vm];
        let (vcpus, destination) = (this.vcpus, message.destination);
        let one = |index: u32| index.min(vcpus)..index.saturating_add(1).min(vcpus);
        if let (reg::ICR_SHORTHAND_SELF, Origin::Vcpu(sender)) = (message.shorthand, message.origin) {
            return one(sender);
        }
        if message.shorthand != reg::ICR_SHORTHAND_NONE || message.is_broadcast() {
            return 0..vcpus;
        }
        if !message.logical {
            return if this.renamed == 0 { one(destination) } else { 0..vcpus };
        }
        // x2APIC logical IDs are derived from the physical ones, so the others need no search.
        if this.x2apic == vcpus {
            let first = (destination >> 16).saturating_mul(16).min(vcpus);
            return first..(first + 16).min(vcpus);
        }
        0..vcpus
    }

    /// Returns whether `message` addresses the vCPU with index `at`. A LAPIC that is switched off receives nothing.
    ///
    /// The meaning of a destination depends on the receiver's mode, and that of a broadcast on the sender's. IDs of all
    /// widths agree while all LAPICs are in one mode, as on real systems.
    pub(crate) fn is_addressed(&self, vm: VmId, at: u32, message: &Message) -> bool {
        let apic = &self.guests.vcpu_of(vm, at).apic;
        if !apic.hardware_enabled() {
            return false;
        }
        match (message.shorthand, message.origin) {
            (reg::ICR_SHORTHAND_SELF, Origin::Vcpu(sender)) => at == sender,
            (reg::ICR_SHORTHAND_ALL, _) => true,
            (reg::ICR_SHORTHAND_OTHERS, Origin::Vcpu(sender)) => at != sender,
            _ if message.is_broadcast() => true,
            _ if message.logical => apic.has_logical_id(message.destination, message.wide),
            _ => apic.has_physical_id(message.destination),
        }
    }

    /// Returns the receiver of a lowest-priority interrupt: of the addressed `candidates` that software has
    /// enabled, the one that has accepted the fewest.
    fn lowest_priority(&self, vm: VmId, candidates: Range<u32>, message: &Message) -> Option<u32> {
        candidates
            .filter(|&at| self.is_addressed(vm, at, message) && self.guests.vcpu_of(vm, at).apic.is_enabled())
            .min_by_key(|&at| self.guests.vcpu_of(vm, at).apic.arbitration)
    }

    /// Returns the only receiver of `message`, a fixed interrupt, or `None` if there are several or none.
    pub(crate) fn only_recipient(&self, vm: VmId, message: &Message) -> Option<u32> {
        if message.mode != DeliveryMode::Fixed || message.shorthand != reg::ICR_SHORTHAND_NONE {
            return None;
        }
        let mut meant = self.candidates(vm, message);
        let mut meant = meant.by_ref().filter(|&at| self.is_addressed(vm, at, message));
        meant.next().filter(|_| meant.next().is_none())
    }

    /// Reports that `vcpu` accepts `vector`, if that tracepoint is on.
    pub(crate) fn trace_accepted(&self, vcpu: VcpuId, vector: u8, step: &mut Step<'_>) {
        if self.config.traces_interrupts {
            step.out.push(Command::AcceptIrq { vcpu, vector });
        }
    }

    /// Gives `message` to the LAPIC of the vCPU with index `to`, and kicks the vCPU. Returns whether the LAPIC accepted
    /// it.
    fn accept(&mut self, vm: VmId, to: u32, message: &Message, step: &mut Step<'_>) -> bool {
        step.charge(Cost::ApicDeliver, 1);
        let id = self.guests.vcpu_id(vm, to);
        let from = match (message.mode, message.origin) {
            (DeliveryMode::Fixed, Origin::Vcpu(sender)) => Some(self.guests.vcpu_id(vm, sender)),
            _ => None,
        };
        if let Some(from) = from.filter(|&from| from != id) {
            self.threads.sched.ipi_sent(from, id);
        }
        let vcpu = &mut self.guests.vcpus[id];
        let (accepted, news) = match message.mode {
            DeliveryMode::Fixed | DeliveryMode::LowestPriority => {
                vcpu.apic.arbitration = vcpu
                    .apic
                    .arbitration
                    .wrapping_add(u32::from(message.mode == DeliveryMode::LowestPriority));
                vcpu.counters.count_accepted(message.origin);
                if message.level && !message.assert {
                    (false, false)
                } else if message.has_illegal_vector() {
                    vcpu.apic.receive_error();
                    (false, true)
                } else {
                    let enabled = vcpu.apic.is_enabled();
                    if enabled {
                        self.trace_accepted(id, message.vector, step);
                    }
                    if enabled && self.deliver_by_hardware(id, message.vector, message.level, step) {
                        return true;
                    }
                    let vcpu = &mut self.guests.vcpus[id];
                    (enabled, vcpu.apic.accept(message.vector, message.level))
                }
            }
            DeliveryMode::Unhalt => {
                vcpu.halt.pv_unhalted = true;
                vcpu.counters.kicks_received += 1;
                (true, true)
            }
            DeliveryMode::Nmi => {
                vcpu.pending.add_nmi();
                (true, true)
            }
            // De-assertion of INIT set arbitration IDs on old CPUs.
            DeliveryMode::Init if message.level && !message.assert => (false, false),
            DeliveryMode::Init => {
                vcpu.pending.init = true;
                (true, true)
            }
            DeliveryMode::Startup => {
                vcpu.pending.sipi = Some(message.vector);
                (true, true)
            }
            // Guests have no SMI handler (KVM without `CONFIG_KVM_SMM`), and there is no 8259 to supply a vector.
            DeliveryMode::Smi | DeliveryMode::ExtInt => (false, false),
        };
        if news {
            self.guests.request_event(id);
            self.kick(id, step);
        }
        accepted
    }
}
