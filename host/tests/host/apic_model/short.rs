//! Short programs of what random ones seldom come to. What a guest does to the place, mode and IDs of its LAPICs
//! switches hardware off, and on again where KVM does; the interrupts are the same all along.

use std::collections::BTreeSet;

use holdfast_abi::{lapic as reg, msr};
use holdfast_host::{ApicRegisters, Inhibit, Nanos, SavedVcpu, VcpuId};
use proptest::prelude::*;

use super::{Act, Delivers, Driven, Fault, Reference, Setup, Taken, agree};
use crate::hardware::{PARTS, Part};

const HOME: u64 = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE;

fn page(vcpu: u32, offset: u32, value: u32) -> Act {
    Act::Page { vcpu, offset, value }
}

fn base(vcpu: u32, value: u64) -> Act {
    let msr = msr::APIC_BASE;
    Act::Msr { vcpu, msr, value }
}

fn ipi(vcpu: u32, to: u32, vector: u32) -> [Act; 2] {
    [page(vcpu, reg::ICR_HIGH, to << 24), page(vcpu, reg::ICR_LOW, vector)]
}

/// A host and the reference, which agree after each act.
struct Both {
    reference: Reference,
    driven: Driven,
}

impl Both {
    /// Returns a pair in which the LAPICs of the first VM are on. All vCPUs have interrupts masked.
    fn new(part: Part) -> Both {
        let setup = Setup { part };
        let mut both = Both {
            reference: Reference::new(setup),
            driven: Driven::new(setup, Fault::None),
        };
        both.run(&[0, 1, 2].map(|vcpu| page(vcpu, reg::SVR, reg::SVR_ENABLE | 0xff)));
        both
    }

    /// Returns how many interrupts are taken.
    fn run(&mut self, acts: &[Act]) -> usize {
        agree(&mut self.reference, &mut self.driven, acts).unwrap_or_else(|difference| panic!("{difference}"))
    }

    fn are_on(&self) -> bool {
        (0..3).all(|vcpu| self.driven.is_virtualized(vcpu))
    }
}

fn interrupts(vcpu: u32, enabled: bool) -> Act {
    Act::Interrupts { vcpu, enabled }
}

#[test]
fn a_moved_lapic_switches_hardware_off_for_good_and_loses_nothing() {
    for part in &PARTS[1..] {
        let mut both = Both::new(*part);
        assert!(both.are_on(), "{part:?}");
        // Requested by hardware, taken with LAPICs emulated.
        assert_eq!(both.run(&ipi(0, 1, 0x41)), 0);
        both.run(&[base(1, HOME ^ 1 << 20)]);
        assert!(both.driven.inhibits().has(Inhibit::ApicBaseModified), "{part:?}");
        assert!((0..3).all(|vcpu| !both.driven.is_virtualized(vcpu)), "{part:?}");
        assert_eq!(both.run(&ipi(2, 1, 0x52)), 0);
        assert_eq!(both.run(&[interrupts(1, true)]), 1, "{part:?}");
        both.run(&[base(1, HOME)]);
        assert_eq!(both.run(&[page(1, reg::EOI, 0), interrupts(1, true)]), 1, "{part:?}");
        assert!(both.driven.inhibits().has(Inhibit::ApicBaseModified), "as in KVM");
        assert!(!both.are_on());
    }
}

#[test]
fn an_id_that_another_has_switches_hardware_off_until_it_is_given_back() {
    for part in &PARTS[1..] {
        let mut both = Both::new(*part);
        assert_eq!(both.run(&ipi(0, 1, 0x41)), 0);
        both.run(&[page(1, reg::ID, 2 << 24)]);
        let inhibits = both.driven.inhibits();
        assert!(inhibits.has(Inhibit::PhysicalIdAliased) && inhibits.has(Inhibit::ApicIdModified));
        assert!((0..3).all(|vcpu| !both.driven.is_virtualized(vcpu)), "{part:?}");
        // Both with that ID get it.
        both.run(&ipi(0, 2, 0x61));
        assert_eq!(both.run(&[interrupts(2, true)]), 1, "{part:?}");
        // An ID of its own, but another one.
        both.run(&[page(1, reg::ID, 9 << 24)]);
        let inhibits = both.driven.inhibits();
        assert!(!inhibits.has(Inhibit::PhysicalIdAliased) && inhibits.has(Inhibit::ApicIdModified));
        both.run(&[page(1, reg::ID, 1 << 24)]);
        assert!(both.driven.inhibits().is_empty() && both.are_on(), "{part:?}");
        assert_eq!(both.run(&[interrupts(1, true)]), 1, "0x61 by {part:?}");
        assert_eq!(
            both.run(&[page(1, reg::EOI, 0), interrupts(1, true)]),
            1,
            "0x41 by {part:?}"
        );
    }
}

#[test]
fn renamed_lapics_are_counted_whoever_stores_the_id_and_however_they_are_reset() {
    for part in PARTS {
        let resets: [&[Act]; 3] = [
            &[base(1, HOME & !msr::APIC_BASE_ENABLE), base(1, HOME)],
            &[page(1, reg::ID, 1 << 24)],
            &[base(1, HOME)],
        ];
        for reset in resets {
            let mut both = Both::new(part);
            both.run(&[page(1, reg::ID, 9 << 24), page(1, reg::ID, 7 << 24)]);
            both.run(reset);
            assert!(both.driven.inhibits().is_empty(), "{part:?}");
            // Counted below zero or too often, it would be looked for by another ID.
            both.run(&[page(1, reg::SVR, reg::SVR_ENABLE | 0xff), interrupts(1, true)]);
            assert_eq!(both.run(&ipi(0, 1, 0x41)), 1, "{part:?}");
        }
    }
}

#[test]
fn logical_ids_that_no_table_can_hold_switch_avic_off_until_they_are_changed() {
    for part in [Part::Avic, Part::X2Avic] {
        let mut both = Both::new(part);
        let own = [page(0, reg::LDR, 1 << 24), page(1, reg::LDR, 2 << 24)];
        both.run(&own);
        assert!(both.are_on());
        let several: [&[Act]; 3] = [
            &[page(1, reg::LDR, 1 << 24)],
            &[page(1, reg::LDR, 6 << 24)],
            &[page(1, reg::DFR, 0)],
        ];
        for acts in several {
            both.run(acts);
            assert!(
                both.driven.inhibits().has(Inhibit::LogicalIdAliased),
                "{part:?}: {acts:?}"
            );
            assert!(!both.are_on());
            both.run(&own);
            both.run(&[page(1, reg::DFR, u32::MAX)]);
            assert!(both.driven.inhibits().is_empty() && both.are_on(), "{part:?}: {acts:?}");
        }
    }
}

fn init(vcpu: u32, to: u32) -> [Act; 4] {
    let [high, low] = ipi(vcpu, to, 0x4500);
    let [_, start] = ipi(vcpu, to, 0x4608);
    [high, low, start, page(to, reg::SVR, reg::SVR_ENABLE | 0xff)]
}

#[test]
fn what_comes_while_a_lapic_is_off_is_forgotten_when_it_is_switched_on() {
    for part in PARTS {
        let mut both = Both::new(part);
        both.run(&[base(1, HOME & !msr::APIC_BASE_ENABLE)]);
        both.run(&ipi(0, 1, 0x41));
        both.run(&[base(1, HOME), page(1, reg::SVR, reg::SVR_ENABLE | 0xff)]);
        assert_eq!(both.run(&[interrupts(1, true)]), 0, "{part:?}");
    }
}

/// Returns a level-triggered message of a device with vector 0x51 for LAPIC 1.
fn level_to_1() -> Act {
    Act::Msi {
        vm: 0,
        address: holdfast_abi::msi::address(1),
        data: holdfast_abi::msi::DATA_LEVEL | 0x51,
    }
}

#[test]
fn an_edge_is_no_level_although_its_vector_was_one_before_a_reset() {
    for part in PARTS {
        let mut both = Both::new(part);
        both.run(&[interrupts(1, true)]);
        assert_eq!(both.run(&[level_to_1()]), 1, "{part:?}");
        both.run(&init(0, 1));
        both.run(&[interrupts(1, true)]);
        assert_eq!(both.run(&ipi(0, 1, 0x51)), 1, "{part:?}");
        let after = [page(1, reg::EOI, 0), interrupts(1, true)];
        assert_eq!(both.run(&after), 0, "{part:?}: nothing comes again");
    }
}

#[test]
fn clusters_keep_their_members_apart() {
    for part in PARTS {
        let mut both = Both::new(part);
        both.run(&[0, 1, 2].map(|vcpu| page(vcpu, reg::DFR, 0)));
        both.run(&[0, 1, 2].map(|vcpu| page(vcpu, reg::LDR, (vcpu << 4 | 1) << 24)));
        both.run(&[1, 2].map(|vcpu| interrupts(vcpu, true)));
        assert_eq!(both.run(&ipi(0, 0x21, reg::ICR_LOGICAL | 0x41)), 1, "{part:?}");
    }
}

#[test]
fn logical_ids_of_both_modes_switch_avic_off() {
    let mut both = Both::new(Part::X2Avic);
    both.run(&[page(1, reg::LDR, 2 << 24), base(0, HOME | msr::APIC_BASE_X2APIC)]);
    assert!(both.driven.inhibits().has(Inhibit::LogicalIdAliased));
    both.run(&[1, 2].map(|vcpu| base(vcpu, HOME | msr::APIC_BASE_X2APIC)));
    assert!(both.driven.inhibits().is_empty() && both.are_on());
}

/// Returns what switches the hardware of the first VM on, or off by an ID that is not its vCPU's.
fn switch(on: bool) -> [Act; 1] {
    [page(2, reg::ID, if on { 2 } else { 9 } << 24)]
}

#[test]
fn a_level_ends_wherever_hardware_is_switched() {
    for part in PARTS {
        for steps in 0..8 {
            // Whether hardware is on when the message comes, the interrupt is taken, and ended.
            let [sent, taken, ended] = [0, 1, 2].map(|step| steps >> step & 1 != 0);
            let mut both = Both::new(part);
            let end = [page(1, reg::EOI, 0), interrupts(1, true)];
            let at = format!("{part:?}, {steps:03b}");
            both.run(&switch(sent));
            assert_eq!(both.are_on(), sent && part != Part::None, "{at}");
            assert_eq!(both.run(&[level_to_1()]), 0, "{at}: it is masked");
            both.run(&switch(taken));
            assert_eq!(both.run(&[interrupts(1, true)]), 1, "{at}");
            both.run(&switch(ended));
            assert_eq!(both.run(&end), 0, "{at}");
            assert_eq!(both.run(&[level_to_1()]), 1, "{at}: the end has reached the LAPIC");
        }
    }
}

#[test]
fn what_hardware_still_sends_to_a_lapic_that_is_emulated_already_is_taken() {
    for part in &PARTS[1..] {
        let mut both = Both::new(*part);
        both.run(&[interrupts(1, true)]);
        let driven = &mut both.driven;
        driven.act(2, switch(false)[0]);
        driven.deliver_to(1);
        assert!(!driven.is_virtualized(1) && driven.is_virtualized(0), "{part:?}");
        ipi(0, 1, 0x41).into_iter().for_each(|act| driven.act(0, act));
        driven.deliver_all();
        assert!(!driven.is_virtualized(0));
        assert_eq!(driven.taken()[1], [Taken::Vector(0x41)], "{part:?}");
    }
}

#[test]
fn a_deassertion_of_init_does_nothing() {
    for part in PARTS {
        let mut both = Both::new(part);
        let [high, _] = ipi(0, 1, 0);
        for (low, resets) in [(0x8500, 0), (0x500, 1), (0xc500, 1), (0x4500, 1)] {
            assert_eq!(
                both.run(&[high, page(0, reg::ICR_LOW, low)]),
                resets,
                "{part:?}: {low:#x}"
            );
            both.run(&init(0, 1)[2..]);
        }
    }
}

fn vectors() -> impl Strategy<Value = BTreeSet<u8>> {
    proptest::collection::btree_set(16u8..=255, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is pending, in service and level-triggered on a host with any part goes on as that on any other: it is
    /// taken in the same order.
    #[test]
    fn a_lapic_goes_on_on_another_part(
        from in prop::sample::select(&PARTS[..]), to in prop::sample::select(&PARTS[..]),
        requested in vectors(), serving in vectors(), levels in vectors(), task in any::<u8>(),
    ) {
        let source = Both::new(from);
        let registers = source.driven.host.apic_page(VcpuId(1)).clone();
        for (field, vectors) in [(reg::IRR, &requested), (reg::ISR, &serving), (reg::TMR, &levels)] {
            vectors.iter().for_each(|&vector| { registers.insert(field, vector); });
        }
        registers.store(reg::TPR, u32::from(task));
        let mut saved: Vec<SavedVcpu> =
            (0..3).map(|vcpu| source.driven.host.save_vcpu(VcpuId(vcpu), Nanos(0))).collect();
        saved[1].guest.interrupts_enabled = true;
        saved[1].guest.cr8 = task >> 4;
        let setup = Setup { part: to };
        let mut driven = Driven::restored(setup, Fault::None, &saved);
        prop_assert_eq!(driven.is_virtualized(1), to != Part::None);
        // Vectors in IRR that are not in the page were posted.
        let [irr, isr, tmr] = driven.registers(1);
        prop_assert_eq!(&tmr, &levels.iter().copied().collect::<Vec<_>>());
        let (mut pending, mut serving) = (requested, serving);
        let mut expected = Vec::new();
        let class = |serving: &BTreeSet<u8>| serving.last().map_or(0, |vector| vector >> 4);
        let mut take = |pending: &mut BTreeSet<u8>, serving: &mut BTreeSet<u8>| {
            let vector = pending.last().copied().filter(|vector| vector >> 4 > class(serving).max(task >> 4));
            if let Some(vector) = vector {
                pending.remove(&vector);
                serving.insert(vector);
                expected.push(Taken::Vector(vector));
            }
        };
        take(&mut pending, &mut serving);
        prop_assert_eq!(irr, pending.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(isr, serving.iter().copied().collect::<Vec<_>>());
        for _ in 0..30 {
            serving.pop_last();
            take(&mut pending, &mut serving);
            driven.perform(page(1, reg::EOI, 0));
            driven.perform(interrupts(1, true));
        }
        prop_assert_eq!(&driven.taken()[1], &expected);
    }
}

#[test]
fn an_interrupt_of_the_class_of_cr8_comes_when_that_falls() {
    for part in PARTS {
        let mut both = Both::new(part);
        let cr8 = |value| Act::Cr8 { vcpu: 1, value };
        both.run(&[cr8(4), interrupts(1, true)]);
        assert_eq!(both.run(&ipi(0, 1, 0x41)), 0, "{part:?}");
        assert_eq!(both.run(&[cr8(3)]), 1, "{part:?}");
    }
}
