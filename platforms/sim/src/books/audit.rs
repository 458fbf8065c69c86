//! An audit of interrupts: each is entered in a book when a LAPIC takes it, and when the vCPU takes it from there.
//!
//! A vector that pends already absorbs another of its kind, as IRR does: that one is *coalesced*. With posted interrupts it may be
//! in PIR still when the vCPU takes the first one from IRR: then it was none. The books know nothing of
//! how interrupts are delivered, and are compared with the LAPICs' pages whenever guests are stopped.
//!
//! - **None doubled**: what a vCPU takes was pending, once.
//! - **None lost**: what pends is in IRR until it is taken.
//! - **None unnoticed**: a vCPU that sleeps in a halt, or executes its guest, with interrupts enabled, hears of what pends
//!   within [`PATIENCE`].

use holdfast_abi::lapic;
use holdfast_abi::vmcs::VIRTUALIZE_X2APIC;
use holdfast_host::{ApicRegisters, Host, VcpuId, VcpuState};
use holdfast_machine::avic::Targets;
use holdfast_machine::{Picos, Time};

use crate::core::engine::Engine;
use crate::core::failure::Failure;

/// For how long a vCPU that could take an interrupt may not have heard of it: far longer than a doorbell or a host's interrupt
/// is under way, far shorter than any timer that would wake it by chance.
const PATIENCE: Picos = Picos::from_nanos(100_000);

/// What became of the interrupts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Accepted by a LAPIC.
    pub sent: u64,
    /// Of these, accepted while another one pended.
    pub coalesced: u64,
    /// Taken by the vCPU.
    pub taken: u64,
}

impl Fate {
    /// Neither taken nor coalesced: 0 or 1 for a vector of a vCPU.
    pub fn pending(&self) -> u64 {
        self.sent - self.coalesced - self.taken
    }

    fn add(&mut self, other: Fate) {
        self.sent += other.sent;
        self.coalesced += other.coalesced;
        self.taken += other.taken;
    }
}

/// The book of a vCPU.
#[derive(Clone, Debug)]
struct Book {
    /// By vector.
    fates: Box<[Fate; 256]>,
    /// Since when each vector pends.
    since: Box<[Time; 256]>,
    /// By vector: another one came while the last one pended.
    again: Box<[bool; 256]>,
    /// Since when it sleeps in a halt that an interrupt should have ended.
    overslept_since: Option<Time>,
    /// Since when it has a pCPU and interrupts are enabled, while both are so.
    open_since: Time,
}

/// The books of a run.
#[derive(Clone, Debug)]
pub struct Audit {
    books: Vec<Book>,
    /// vCPUs entered on another pCPU than before.
    pub moves: u64,
}

impl Audit {
    /// Empty books for `vcpus`.
    pub fn new(vcpus: usize) -> Audit {
        let book = Book {
            fates: Box::new([Fate::default(); 256]),
            since: Box::new([Time(0); 256]),
            again: Box::new([false; 256]),
            overslept_since: None,
            open_since: Time(0),
        };
        Audit {
            books: vec![book; vcpus],
            moves: 0,
        }
    }

    /// What became of each vector's interrupts, of all vCPUs together; vectors that were never sent are left out.
    pub fn by_vector(&self) -> Vec<(u8, Fate)> {
        let sum = |vector: u8| {
            let mut sum = Fate::default();
            self.books
                .iter()
                .for_each(|book| sum.add(book.fates[usize::from(vector)]));
            (vector, sum)
        };
        (0..=u8::MAX).map(sum).filter(|(_, fate)| fate.sent > 0).collect()
    }

    /// Bits of IRR's register `word` for `vcpu`, as they should be.
    fn irr(&self, vcpu: usize, word: usize) -> u32 {
        let fates = &self.books[vcpu].fates[word * 32..][..32];
        let bit = |(bit, fate): (usize, &Fate)| (fate.pending() as u32) << bit;
        fates.iter().enumerate().map(bit).sum()
    }

    /// The first vector that is pending in the book of `vcpu` and not in `irr`, or the other way round.
    fn difference(&self, vcpu: usize, irr: impl Fn(u32) -> u32) -> Option<u8> {
        (0..8).find_map(|word| {
            let wrong = self.irr(vcpu, word) ^ irr(lapic::IRR + word as u32 * lapic::STRIDE);
            (wrong != 0).then(|| (word * 32) as u8 + wrong.trailing_zeros() as u8)
        })
    }
}

impl Engine {
    /// The LAPIC of `vcpu` has accepted `vector`.
    pub fn audit_sent(&mut self, vcpu: u32, vector: u8) {
        let Some(audit) = &mut self.audit else { return };
        let this = &self.vcpus[vcpu as usize];
        let book = &mut audit.books[vcpu as usize];
        let fate = &mut book.fates[usize::from(vector)];
        fate.sent += 1;
        let again = fate.pending() > 1;
        book.again[usize::from(vector)] = again;
        if again {
            fate.coalesced += 1;
            return;
        }
        book.since[usize::from(vector)] = self.now;
        if this.state == VcpuState::Blocked && this.irqs_enabled {
            book.overslept_since.get_or_insert(self.now);
        }
    }

    /// `vcpu` takes `vector`.
    pub fn audit_taken(&mut self, vcpu: u32, vector: u8) {
        let Some(audit) = &mut self.audit else { return };
        let book = &mut audit.books[vcpu as usize];
        let fate = &mut book.fates[usize::from(vector)];
        if fate.pending() == 0 {
            let what = format!("vcpu {vcpu} takes vector {vector:#x}, which does not pend, after {fate:?}");
            self.failure.get_or_insert(Failure::DoubledInterrupt(what));
            return;
        }
        fate.taken += 1;
        // PIR holds another one, sent while this one was in IRR: hardware keeps both.
        if std::mem::take(&mut book.again[usize::from(vector)]) && self.host.has_posted(VcpuId(vcpu), vector) {
            fate.coalesced -= 1;
            book.since[usize::from(vector)] = self.now;
        }
    }

    /// Hardware has pended an IPI of `vcpu` for all of `targets`.
    pub fn audit_posted(&mut self, vcpu: u32, targets: &Targets) {
        if self.audit.is_none() {
            return;
        }
        let vm = self.vcpus[vcpu as usize].vm;
        let itself = targets.include_sender().then_some(vcpu);
        let others = targets.others().map(|id| self.vcpu_of(vm, id));
        let all: Vec<u32> = others.chain(itself).collect();
        for target in all {
            self.audit_sent(target, targets.vector());
        }
    }

    /// Intel's hardware has posted the IPI that the ICR of `vcpu` names: to one LAPIC, by its physical ID.
    pub fn audit_posted_intel(&mut self, vcpu: u32) {
        if self.audit.is_none() {
            return;
        }
        let page = self.host.apic_page(VcpuId(vcpu));
        let (low, high) = (page.load(lapic::ICR_LOW), page.load(lapic::ICR_HIGH));
        let wide = self
            .host
            .vmcs(VcpuId(vcpu))
            .is_some_and(|control| control.secondary & VIRTUALIZE_X2APIC != 0);
        let target = self.vcpu_of(self.vcpus[vcpu as usize].vm, if wide { high } else { high >> 24 });
        self.audit_sent(target, low as u8);
    }

    /// A vCPU is entered, maybe on another pCPU than before.
    pub fn audit_entry(&mut self, has_moved: bool) {
        if let Some(audit) = &mut self.audit {
            audit.moves += u64::from(has_moved);
        }
    }

    /// `vcpu` can take interrupts from now on.
    #[inline]
    pub fn audit_open(&mut self, vcpu: u32) {
        let Some(audit) = &mut self.audit else { return };
        audit.books[vcpu as usize].open_since = self.now;
    }

    /// `vcpu` leaves its guest: what it could have taken it has taken.
    pub fn audit_exit(&mut self, vcpu: u32) {
        let Some(audit) = &self.audit else { return };
        let this = &self.vcpus[vcpu as usize];
        if !this.irqs_enabled || this.inject.is_some() {
            return;
        }
        let page = self.host.apic_page(VcpuId(vcpu));
        let waits = page
            .highest(lapic::IRR)
            .filter(|&vector| u32::from(vector) & 0xf0 > page.processor_priority() & 0xf0);
        let Some(vector) = waits.or_else(|| self.pending_in_hardware(vcpu)) else {
            return;
        };
        let book = &audit.books[vcpu as usize];
        let since = book.since[usize::from(vector)].max(book.open_since);
        if self.now.since(since) > PATIENCE {
            let us = self.now.since(since).0 / 1_000_000;
            let what = format!("vcpu {vcpu} has executed its guest for {us} us without hearing of vector {vector:#x}");
            self.failure.get_or_insert(Failure::LostInterrupt(what));
        }
    }

    /// `vcpu` is in `state` from now on.
    pub fn audit_state(&mut self, vcpu: u32, state: VcpuState) {
        let Some(audit) = &mut self.audit else { return };
        if !self.vcpus[vcpu as usize].is_running() {
            audit.books[vcpu as usize].open_since = self.now;
        }
        let blocked = state == VcpuState::Blocked && self.vcpus[vcpu as usize].irqs_enabled;
        let book = &mut audit.books[vcpu as usize];
        if !blocked {
            self.audit_sleep(vcpu);
        } else if book.fates.iter().any(|fate| fate.pending() > 0) {
            book.overslept_since.get_or_insert(self.now);
        }
    }

    /// `vcpu` sleeps no longer, or is looked at: whether it has slept too long.
    fn audit_sleep(&mut self, vcpu: u32) {
        let Some(audit) = &mut self.audit else { return };
        let Some(since) = audit.books[vcpu as usize].overslept_since.take() else {
            return;
        };
        if self.now.since(since) > PATIENCE {
            let us = self.now.since(since).0 / 1_000_000;
            let what = format!("vcpu {vcpu} has slept for {us} us with an interrupt pending");
            self.failure.get_or_insert(Failure::LostInterrupt(what));
        }
    }

    /// Compares the books with `host`, whose vCPUs are stopped, and for all of which PIR is empty. `when` is for the message.
    pub fn audit_host(&mut self, host: &Host, when: &str) {
        for vcpu in 0..self.vcpus.len() as u32 {
            self.audit_sleep(vcpu);
            let Some(audit) = &self.audit else { return };
            let page = host.apic_page(VcpuId(vcpu));
            if let Some(vector) = audit.difference(vcpu as usize, |offset| page.load(offset)) {
                let fate = audit.books[vcpu as usize].fates[usize::from(vector)];
                let pends = if fate.pending() > 0 {
                    "is lost"
                } else {
                    "pends though nobody sent it"
                };
                let what = format!("vector {vector:#x} of vcpu {vcpu} {pends} {when}: {fate:?}");
                self.failure.get_or_insert(Failure::LostInterrupt(what));
            }
        }
    }
}
