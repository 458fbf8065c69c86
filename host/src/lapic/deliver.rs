//! Carrying interrupts from one LAPIC to others: who is meant, and what accepting means.

use holdfast_abi::lapic as reg;
use holdfast_abi::lapic::DeliveryMode;

use crate::boundary::{Cost, VmId};
use crate::host::Host;
use crate::step::Step;

/// An interrupt on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) vector: u8,
    pub(crate) mode: DeliveryMode,
    pub(crate) shorthand: u32,
    pub(crate) logical: bool,
    pub(crate) destination: u32,
    /// The destination is as wide as x2APIC's.
    pub(crate) wide: bool,
}

impl Message {
    /// What an interrupt command asks for.
    pub(crate) fn of_icr(low: u32, destination: u32, wide: bool) -> Message {
        Message {
            vector: low as u8,
            mode: DeliveryMode::of(low),
            shorthand: low & reg::ICR_SHORTHAND,
            logical: low & reg::ICR_LOGICAL != 0,
            destination,
            wide,
        }
    }

    /// The pseudo-interrupt that ends a halt, to one APIC ID.
    pub(crate) fn unhalt(apic_id: u32) -> Message {
        Message {
            vector: 0,
            mode: DeliveryMode::Unhalt,
            shorthand: reg::ICR_SHORTHAND_NONE,
            logical: false,
            destination: apic_id,
            wide: true,
        }
    }

    /// Whether it carries a vector, and that is reserved for exceptions.
    pub(crate) fn has_illegal_vector(&self) -> bool {
        let carries = matches!(self.mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority);
        carries && self.vector < reg::FIRST_LEGAL_VECTOR
    }

    fn is_broadcast(&self) -> bool {
        self.destination
            == if self.wide {
                reg::X2APIC_BROADCAST
            } else {
                reg::BROADCAST
            }
    }
}

impl Host {
    /// Delivers `message` from the vCPU with index `sender` of `vm`.
    pub(crate) fn deliver(&mut self, vm: VmId, sender: u32, message: &Message, step: &mut Step<'_>) {
        let vcpus = self.vms[vm.0 as usize].vcpus;
        match message.shorthand {
            reg::ICR_SHORTHAND_SELF => self.accept(vm, sender, message, step),
            reg::ICR_SHORTHAND_ALL => (0..vcpus).for_each(|to| self.accept(vm, to, message, step)),
            reg::ICR_SHORTHAND_OTHERS => {
                (0..vcpus)
                    .filter(|&to| to != sender)
                    .for_each(|to| self.accept(vm, to, message, step));
            }
            _ if message.logical => self.deliver_logical(vm, message, step),
            _ if message.is_broadcast() => (0..vcpus).for_each(|to| self.accept(vm, to, message, step)),
            _ if message.destination < vcpus => self.accept(vm, message.destination, message, step),
            _ => {}
        }
    }

    /// The one vCPU that `message`, a fixed interrupt, is for; `None` if there are several or none.
    pub(crate) fn only_recipient(&self, vm: VmId, message: &Message) -> Option<u32> {
        let vcpus = self.vms[vm.0 as usize].vcpus;
        if message.mode != DeliveryMode::Fixed || message.shorthand != reg::ICR_SHORTHAND_NONE {
            return None;
        }
        if !message.logical {
            return (!message.is_broadcast() && message.destination < vcpus).then_some(message.destination);
        }
        let mut meant = (0..vcpus).filter(|&at| self.matches_logical(vm, at, message));
        meant.next().filter(|_| meant.next().is_none())
    }

    fn deliver_logical(&mut self, vm: VmId, message: &Message, step: &mut Step<'_>) {
        let vcpus = self.vms[vm.0 as usize].vcpus;
        // x2APIC's logical IDs are derived from the physical ones: no search among the others.
        let (from, to) = if message.wide && !message.is_broadcast() {
            let first = (message.destination >> 16).saturating_mul(16).min(vcpus);
            (first, (first + 16).min(vcpus))
        } else {
            (0, vcpus)
        };
        if message.mode != DeliveryMode::LowestPriority {
            for at in from..to {
                if self.matches_logical(vm, at, message) {
                    self.accept(vm, at, message, step);
                }
            }
            return;
        }
        let candidates = (from..to).filter(|&at| self.matches_logical(vm, at, message));
        if let Some(least) = candidates.min_by_key(|&at| self.vcpu(vm, at).apic.arbitration) {
            self.accept(vm, least, message, step);
        }
    }

    /// Whether the logical destination of `message` names the vCPU with index `at`.
    fn matches_logical(&self, vm: VmId, at: u32, message: &Message) -> bool {
        let apic = &self.vcpu(vm, at).apic;
        if message.is_broadcast() {
            return true;
        }
        let (ldr, destination) = (apic.ldr(), message.destination);
        match (message.wide, apic.is_x2apic()) {
            (true, true) => ldr >> 16 == destination >> 16 && ldr & destination & 0xffff != 0,
            (false, false) if apic.is_flat() => (ldr >> 24) & destination & 0xff != 0,
            (false, false) => {
                let (id, mask) = (ldr >> 24, destination & 0xff);
                id >> 4 == mask >> 4 && id & mask & 0xf != 0
            }
            // Sender and receiver in different modes never match: no real guest mixes them.
            _ => false,
        }
    }

    /// The LAPIC of the vCPU with index `to` accepts `message`: pends it, and makes the vCPU look.
    fn accept(&mut self, vm: VmId, to: u32, message: &Message, step: &mut Step<'_>) {
        step.charge(Cost::ApicDeliver, 1);
        let id = self.vcpu_id(vm, to);
        let vcpu = &mut self.vcpus[id.0 as usize];
        let news = match message.mode {
            DeliveryMode::Fixed | DeliveryMode::LowestPriority => {
                vcpu.apic.arbitration += u32::from(message.mode == DeliveryMode::LowestPriority);
                if message.has_illegal_vector() {
                    vcpu.apic.receive_error();
                    true
                } else {
                    vcpu.apic.accept(message.vector)
                }
            }
            DeliveryMode::Unhalt => {
                vcpu.pv_unhalted = true;
                vcpu.counters.kicks_received += 1;
                true
            }
            // Deliberately missing: all vCPUs start running, and the boundary injects vectors only.
            DeliveryMode::Smi
            | DeliveryMode::Nmi
            | DeliveryMode::Init
            | DeliveryMode::Startup
            | DeliveryMode::ExtInt => false,
        };
        if news {
            self.request_event(id);
            self.kick(id, step);
        }
    }
}
