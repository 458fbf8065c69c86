//! What hardware that virtualizes LAPICs does by its manual where the emulated LAPIC does something else, and when it
//! is on at all.
//!
//! - It does not look whether a target's LAPIC is enabled; what comes to one that is off is forgotten when that is
//!   switched on.
//! - AVIC finds targets in tables of IDs, and marks what it sends as edge triggered; one missing target makes the whole
//!   IPI software's. It has no error interrupt for vectors below 16.
//! - APICv sends to itself and, with IPI virtualization, to one physical ID; it leaves TMR alone.

use super::super::Setup;
use super::Reference;
use super::apic::{Apic, Mode};
use crate::hardware::Part;

/// The targets of an IPI that hardware sends.
pub(super) enum Sent {
    /// These, whatever their LAPICs say.
    To(Vec<usize>),
    /// There is no target.
    Dropped,
    /// Software delivers it.
    BySoftware,
}

impl Reference {
    /// Returns whether hardware virtualizes the LAPIC of vCPU `at`.
    pub(super) fn is_on(&self, at: usize) -> bool {
        self.setup.part != Part::None && self.apics[at].mode != Mode::Off && !self.is_inhibited(Self::vm_of(at))
    }

    /// Why nothing in the VM is virtualized: a LAPIC was ever moved, has another ID than its vCPU's, or, under AVIC,
    /// cannot be found by its logical ID.
    fn is_inhibited(&self, vm: usize) -> bool {
        let apics = || Self::members(vm).map(|at| &self.apics[at]);
        let renamed = apics().any(|apic| apic.mode == Mode::XApic && apic.id != apic.index);
        let x2apics = apics().filter(|apic| apic.mode == Mode::X2Apic).count();
        let hidden = x2apics > 0 && self.setup.part == Part::Avic;
        renamed || self.moved[vm] || self.setup.part.is_amd() && (hidden || self.is_aliased(vm, x2apics > 0))
    }

    /// Returns whether logical IDs are ambiguous, or of several models.
    fn is_aliased(&self, vm: usize, any_x2apic: bool) -> bool {
        let has_name = |apic: &&Apic| apic.mode == Mode::XApic && apic.ldr != 0;
        let apics: Vec<&Apic> = Self::members(vm).map(|at| &self.apics[at]).filter(has_name).collect();
        let one_bit = |apic: &Apic| match apic.flat {
            true => apic.ldr.is_power_of_two(),
            false => (apic.ldr & 0xf).is_power_of_two() && apic.ldr >> 4 < 15,
        };
        let twice = |(at, apic): (usize, &&Apic)| apics[..at].iter().any(|other| other.ldr == apic.ldr);
        let mixed = any_x2apic || apics.iter().any(|apic| apic.flat != apics[0].flat);
        !apics.is_empty() && (mixed || !apics.iter().all(|apic| one_bit(apic)) || apics.iter().enumerate().any(twice))
    }

    /// Returns whether x2APIC is offered: KVM hides it where AVIC cannot do it.
    pub(super) fn offers_x2apic(setup: Setup) -> bool {
        setup.part != Part::Avic
    }

    /// Returns how the fixed, edge-triggered interrupt that `at` sends is delivered.
    pub(super) fn sent_by_hardware(&self, at: usize, low: u32, destination: u32) -> Sent {
        if !self.is_on(at) || low >> 8 & 7 != 0 || low & 1 << 15 != 0 {
            return Sent::BySoftware;
        }
        let vector = low as u8;
        let found = match self.setup.part {
            // Without x2AVIC the writes of x2APIC's ICR exit.
            Part::Hybrid if self.apics[at].mode == Mode::X2Apic => return Sent::BySoftware,
            Part::Avic | Part::Hybrid | Part::X2Avic if vector < 16 => return Sent::Dropped,
            Part::Avic | Part::Hybrid | Part::X2Avic => self.found_in_tables(at, low, destination),
            _ if vector < 16 => None,
            part => {
                let plain = low & (3 << 18 | 1 << 11) == 0 && part == Part::Ipiv;
                // Writes of x2APIC's ICR exit unless hardware sends.
                let own = low >> 18 & 3 == 1 && (part == Part::Ipiv || self.apics[at].mode == Mode::XApic);
                let to = plain.then(|| self.member(at, destination)).flatten();
                if own { Some(vec![at]) } else { to.map(|to| vec![to]) }
            }
        };
        found.map_or(Sent::BySoftware, Sent::To)
    }

    /// Returns the vCPU of the sender's VM with number `index`.
    fn member(&self, at: usize, index: u32) -> Option<usize> {
        let all = Self::members(Self::vm_of(at));
        let to = all.start.checked_add(usize::try_from(index).ok()?)?;
        all.contains(&to).then_some(to)
    }

    /// AVIC's tables: physical IDs, and logical ones as each LAPIC has written them; `None` if something named is
    /// missing.
    fn found_in_tables(&self, at: usize, low: u32, destination: u32) -> Option<Vec<usize>> {
        let all = Self::members(Self::vm_of(at));
        let sender = &self.apics[at];
        let wide = sender.mode == Mode::X2Apic;
        let broadcast = destination == if wide { u32::MAX } else { 0xff };
        match low >> 18 & 3 {
            1 => return Some(vec![at]),
            2 => return Some(all.collect()),
            3 => return Some(all.filter(|&to| to != at).collect()),
            _ if broadcast => return Some(all.collect()),
            _ if low & 1 << 11 == 0 => return Some(vec![self.member(at, destination)?]),
            _ => {}
        }
        let bits = |mask: u32| (0..16).filter(move |bit| mask >> bit & 1 != 0);
        if wide {
            let cluster = (destination >> 16).checked_mul(16)?;
            return bits(destination & 0xffff)
                .map(|bit| self.member(at, cluster + bit))
                .collect();
        }
        let (cluster, mask) = match sender.flat {
            true => (0, destination & 0xff),
            false => (destination & 0xf0, destination & 0xf),
        };
        let named = |ldr: u32| {
            let is = |to: &usize| self.apics[*to].mode == Mode::XApic && self.apics[*to].ldr == ldr;
            all.clone().find(is)
        };
        bits(mask).map(|bit| named(cluster | 1 << bit)).collect()
    }

    /// Makes `vector` pending in the LAPIC of `to`, as hardware does.
    pub(super) fn post(&mut self, to: usize, vector: u8) {
        let apic = &mut self.apics[to];
        apic.irr.insert(vector);
        if self.setup.part.is_amd() {
            apic.tmr.remove(&vector);
        }
    }

    /// Drops the requests of LAPIC `at` that came while it was off.
    pub(super) fn forget_requests_while_off(&mut self, at: usize) {
        self.apics[at].irr.clear();
    }
}
