//! The audit of interrupts: each is entered in a book when a LAPIC accepts it, and when the vCPU takes it from there.
//!
//! A vector that is pending absorbs another interrupt of its kind, as IRR does: the second one is *coalesced*. With
//! posted interrupts the second one may still be in PIR when the vCPU takes the first one from IRR; then it was not
//! coalesced. The books do not know how interrupts are delivered. They are compared with the LAPICs' pages whenever
//! guests are stopped.
//!
//! - **None doubled**: a vector that a vCPU takes was pending, once.
//! - **None lost**: a pending vector is in IRR until it is taken.
//! - **None unnoticed**: a vCPU that sleeps in a halt or executes its guest, with interrupts enabled, notices a pending
//!   vector within [`PATIENCE`].

use holdfast_abi::lapic;
use holdfast_abi::vmcs::VIRTUALIZE_X2APIC;
use holdfast_host::{ApicRegisters, Host, IdVec, Run, VcpuId, VcpuState};
use holdfast_machine::avic::Targets;
use holdfast_machine::iommu::Delivery;
use holdfast_machine::{Picos, Time};

use crate::books::happened::{Happened, View};
use crate::core::failure::Failure;
use crate::parts::vcpu::is_running;

/// For how long a vCPU that could take an interrupt may not have noticed it: far longer than a doorbell or a host's
/// interrupt is on its way, far shorter than any timer that would wake the vCPU by chance.
const PATIENCE: Picos = Picos::from_nanos(100_000);

/// What became of the interrupts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Interrupts that a LAPIC accepted.
    pub sent: u64,
    /// Of these, interrupts accepted while another one was pending.
    pub coalesced: u64,
    /// Interrupts that the vCPU took.
    pub taken: u64,
}

impl Fate {
    /// Interrupts that are neither taken nor coalesced: 0 or 1 for a vector of a vCPU.
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
    /// Since when each vector is pending.
    since: Box<[Time; 256]>,
    /// By vector: another interrupt arrived while the last one was pending.
    again: Box<[bool; 256]>,
    /// Since when the vCPU sleeps in a halt that an interrupt should have ended.
    overslept_since: Option<Time>,
    /// Since when the vCPU has a pCPU and interrupts enabled, while both are so.
    open_since: Time,
}

impl Book {
    fn new() -> Book {
        Book {
            fates: Box::new([Fate::default(); 256]),
            since: Box::new([Time(0); 256]),
            again: Box::new([false; 256]),
            overslept_since: None,
            open_since: Time(0),
        }
    }

    /// Bits of IRR's register `word` according to the book.
    fn irr(&self, word: usize) -> u32 {
        let fates = &self.fates[word * 32..][..32];
        let bit = |(bit, fate): (usize, &Fate)| (fate.pending() as u32) << bit;
        fates.iter().enumerate().map(bit).sum()
    }

    /// The first vector that is pending either in the book or in `irr`, but not in both.
    fn difference(&self, irr: impl Fn(u32) -> u32) -> Option<u8> {
        (0..8).find_map(|word| {
            let wrong = self.irr(word) ^ irr(lapic::IRR + word as u32 * lapic::STRIDE);
            (wrong != 0).then(|| (word * 32) as u8 + wrong.trailing_zeros() as u8)
        })
    }
}

/// The audit of a run.
#[derive(Clone, Debug)]
pub struct Audit {
    books: IdVec<VcpuId, Book>,
    /// Number of entries of a vCPU on another pCPU than before.
    pub moves: u64,
    /// The first fault found.
    pub failure: Option<Failure>,
}

impl Audit {
    /// Empty books for `vcpus` vCPUs.
    pub fn new(vcpus: usize) -> Audit {
        Audit {
            books: IdVec::filled(Book::new(), vcpus),
            moves: 0,
            failure: None,
        }
    }

    /// What became of each vector's interrupts, of all vCPUs together. Vectors that were never sent are left out.
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

    /// Enters what `happened`.
    ///
    /// Inlined where it is called, as `Books::observe` is.
    #[inline(always)]
    pub fn observe(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        match *happened {
            Happened::Accepted { vcpu, vector } => self.sent(view, vcpu, vector),
            Happened::Taken { vcpu, vector } => self.taken(view, vcpu, vector),
            Happened::Chosen {
                run:
                    Run::Guest {
                        vcpu,
                        inject: Some(vector),
                        ..
                    },
                ..
            } => self.taken(view, vcpu, vector),
            Happened::IpiPended { vcpu, targets, .. } => self.pended(view, vcpu, targets),
            Happened::IpiPosted { vcpu, .. } => self.posted(view, vcpu),
            Happened::DeviceSignaled {
                vm: Some(vm),
                delivery: Delivery::Guest { tag, vector, .. },
                ..
            } => self.sent(view, view.vms[vm].vcpu(tag.vcpu()), *vector),
            Happened::Entered { has_moved, .. } => self.moves += u64::from(has_moved),
            Happened::InterruptsEnabled { vcpu } => self.books[vcpu].open_since = view.now,
            Happened::Stops { vcpu } => self.stops(view, vcpu),
            Happened::StateChanged { vcpu, before } => self.state_changed(view, vcpu, before),
            Happened::HostCompared { host, when } => self.compare(view, host, when),
            _ => {}
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The LAPIC of `vcpu` has accepted `vector`.
    fn sent(&mut self, view: &View<'_>, vcpu: VcpuId, vector: u8) {
        let this = view.vcpu(vcpu);
        let book = &mut self.books[vcpu];
        let fate = &mut book.fates[usize::from(vector)];
        fate.sent += 1;
        let again = fate.pending() > 1;
        book.again[usize::from(vector)] = again;
        if again {
            fate.coalesced += 1;
            return;
        }
        book.since[usize::from(vector)] = view.now;
        if this.state == VcpuState::Blocked && this.interrupts.enabled {
            book.overslept_since.get_or_insert(view.now);
        }
    }

    /// `vcpu` takes `vector`.
    fn taken(&mut self, view: &View<'_>, vcpu: VcpuId, vector: u8) {
        let book = &mut self.books[vcpu];
        let fate = &mut book.fates[usize::from(vector)];
        if fate.pending() == 0 {
            let what = format!(
                "vcpu {} takes vector {vector:#x}, which is not pending, after {fate:?}",
                vcpu.0
            );
            return self.fail(Failure::DoubledInterrupt(what));
        }
        fate.taken += 1;
        // PIR holds another one, sent while this one was in IRR: hardware keeps both.
        if std::mem::take(&mut book.again[usize::from(vector)]) && view.host.has_posted(vcpu, vector) {
            fate.coalesced -= 1;
            book.since[usize::from(vector)] = view.now;
        }
    }

    /// AVIC has pended an IPI of `vcpu` for all of `targets`.
    fn pended(&mut self, view: &View<'_>, vcpu: VcpuId, targets: &Targets) {
        let vm = &view.vms[view.vm_of(vcpu)];
        let itself = targets.include_sender().then_some(vcpu);
        for target in targets.others().map(|id| vm.vcpu(id)).chain(itself) {
            self.sent(view, target, targets.vector());
        }
    }

    /// APICv has posted the IPI that the ICR of `vcpu` names: to one LAPIC, by its physical ID.
    fn posted(&mut self, view: &View<'_>, vcpu: VcpuId) {
        let page = view.host.apic_page(vcpu);
        let (low, high) = (page.load(lapic::ICR_LOW), page.load(lapic::ICR_HIGH));
        let control = view.host.vmcs(vcpu);
        let wide = control.is_some_and(|control| control.secondary & VIRTUALIZE_X2APIC != 0);
        let id = if wide { high } else { high >> 24 };
        let target = view.vms[view.vm_of(vcpu)].vcpu(id);
        self.sent(view, target, low as u8);
    }

    /// `vcpu` is about to leave its guest: it must have taken every vector that it could take.
    fn stops(&mut self, view: &View<'_>, vcpu: VcpuId) {
        let this = view.vcpu(vcpu);
        if !this.interrupts.enabled || this.interrupts.vector.is_some() {
            return;
        }
        let page = view.host.apic_page(vcpu);
        let waits = page
            .highest(lapic::IRR)
            .filter(|&vector| u32::from(vector) & 0xf0 > page.processor_priority() & 0xf0);
        let Some(vector) = waits.or_else(|| view.apic.pending(view.host, vcpu)) else {
            return;
        };
        let book = &self.books[vcpu];
        let since = book.since[usize::from(vector)].max(book.open_since);
        if view.now.since(since) > PATIENCE {
            let us = view.now.since(since).0 / 1_000_000;
            let what = format!(
                "vcpu {} has executed its guest for {us} us without noticing vector {vector:#x}",
                vcpu.0
            );
            self.fail(Failure::LostInterrupt(what));
        }
    }

    /// `vcpu` changed from `before` to its present state.
    fn state_changed(&mut self, view: &View<'_>, vcpu: VcpuId, before: VcpuState) {
        let this = view.vcpu(vcpu);
        let book = &mut self.books[vcpu];
        if !is_running(before) {
            book.open_since = view.now;
        }
        if this.state != VcpuState::Blocked || !this.interrupts.enabled {
            self.wakes(view, vcpu);
        } else if book.fates.iter().any(|fate| fate.pending() > 0) {
            book.overslept_since.get_or_insert(view.now);
        }
    }

    /// `vcpu` no longer sleeps, or is examined: it must not have slept too long.
    fn wakes(&mut self, view: &View<'_>, vcpu: VcpuId) {
        let Some(since) = self.books[vcpu].overslept_since.take() else {
            return;
        };
        if view.now.since(since) > PATIENCE {
            let us = view.now.since(since).0 / 1_000_000;
            let what = format!("vcpu {} has slept for {us} us with an interrupt pending", vcpu.0);
            self.fail(Failure::LostInterrupt(what));
        }
    }

    /// Compares the books with `host`, whose vCPUs are all stopped with empty PIRs. `when` is for the message.
    fn compare(&mut self, view: &View<'_>, host: &Host, when: &str) {
        for vcpu in self.books.ids() {
            self.wakes(view, vcpu);
            let page = host.apic_page(vcpu);
            let book = &self.books[vcpu];
            let Some(vector) = book.difference(|offset| page.load(offset)) else {
                continue;
            };
            let fate = book.fates[usize::from(vector)];
            let fault = if fate.pending() > 0 {
                "is lost"
            } else {
                "is pending though it was not sent"
            };
            let what = format!("vector {vector:#x} of vcpu {} {fault} {when}: {fate:?}", vcpu.0);
            self.fail(Failure::LostInterrupt(what));
        }
    }
}
