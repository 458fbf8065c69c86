//! Tests of the register file alone.

use holdfast_abi::ioapic as reg;
use proptest::prelude::*;

use super::*;

fn write(ioapic: &mut Ioapic, register: u32, value: u32) -> Option<u32> {
    ioapic.select = register as u8;
    ioapic.write_selected(value)
}

fn read(ioapic: &mut Ioapic, register: u32) -> u32 {
    ioapic.select = register as u8;
    ioapic.read(reg::WINDOW)
}

/// Returns an I/O APIC with pin 3 open: vector 0x51, level- or edge-triggered.
fn open(level: bool) -> Ioapic {
    let mut ioapic = Ioapic::default();
    let trigger = if level { reg::ENTRY_LEVEL as u32 } else { 0 };
    assert_eq!(write(&mut ioapic, reg::REDIRECTION + 6, 0x51 | trigger), Some(3));
    ioapic
}

#[test]
fn registers_read_as_the_datasheet_has_them() {
    let mut ioapic = Ioapic::default();
    write(&mut ioapic, reg::ID, u32::MAX);
    assert_eq!(read(&mut ioapic, reg::ID), 0x0f00_0000);
    assert_eq!(read(&mut ioapic, reg::VERSION), 0x0017_0020);
    assert_eq!(write(&mut ioapic, reg::VERSION, 0), None);
    assert_eq!(write(&mut ioapic, reg::REDIRECTION + 1, u32::MAX), Some(0));
    assert_eq!(read(&mut ioapic, reg::REDIRECTION + 1), 0xff00_0000);
    write(&mut ioapic, reg::REDIRECTION, u32::MAX);
    assert_eq!(
        read(&mut ioapic, reg::REDIRECTION),
        0x1_afff,
        "status and remote IRR are read-only"
    );
    assert_eq!(
        write(&mut ioapic, reg::REDIRECTION + 48, 1),
        None,
        "there are 24 entries"
    );
    assert_eq!(read(&mut ioapic, 0xff), 0);
    assert_eq!(ioapic.read(reg::SELECT), 0xff, "the selector");
    assert_eq!(ioapic.read(reg::SELECT + 4), 0, "no register");
}

#[test]
fn an_edge_counts_once_and_a_masked_one_never() {
    let mut ioapic = open(false);
    assert!(ioapic.set_line(3, true));
    assert!(!ioapic.set_line(3, true), "it is up already");
    assert!(!ioapic.set_line(3, false));
    write(&mut ioapic, reg::REDIRECTION + 6, 0x51 | reg::ENTRY_MASKED as u32);
    assert!(!ioapic.set_line(3, true));
    write(&mut ioapic, reg::REDIRECTION + 6, 0x51);
    assert!(!ioapic.wants_to_send(3), "an edge while masked is gone");
}

#[test]
fn a_level_is_sent_until_it_is_taken_and_again_after_its_end() {
    let mut ioapic = open(true);
    assert!(ioapic.set_line(3, true));
    assert!(ioapic.wants_to_send(3), "nobody has taken it");
    ioapic.taken(3);
    assert!(!ioapic.wants_to_send(3));
    assert_eq!(ioapic.waiting_for_end(0x51).collect::<alloc::vec::Vec<_>>(), [3]);
    assert_eq!(ioapic.end(3), AfterEnd::Again);
    ioapic.taken(3);
    assert!(!ioapic.set_line(3, false));
    assert_eq!(ioapic.end(3), AfterEnd::Nothing);
}

#[test]
fn a_level_that_never_falls_is_held_back_once_in_ten_thousand() {
    let mut ioapic = open(true);
    ioapic.set_line(3, true);
    for round in 1..=20_000 {
        ioapic.taken(3);
        let later = round % 10_000 == 0;
        assert_eq!(ioapic.end(3) == AfterEnd::Later, later, "{round}");
    }
}

#[test]
fn an_eoi_ends_the_assertion_of_a_resampled_pin() {
    let mut ioapic = open(true);
    ioapic.resample(3);
    ioapic.set_line(3, true);
    ioapic.taken(3);
    assert_eq!(ioapic.end(3), AfterEnd::Nothing);
    assert!(ioapic.set_line(3, true), "the device still wants");
}

#[test]
fn switching_to_edge_and_back_frees_a_pin_that_no_lapic_will_end() {
    let mut ioapic = open(true);
    ioapic.set_line(3, true);
    ioapic.taken(3);
    write(&mut ioapic, reg::REDIRECTION + 6, 0x51);
    write(&mut ioapic, reg::REDIRECTION + 6, 0x51 | reg::ENTRY_LEVEL as u32);
    assert!(ioapic.wants_to_send(3));
}

#[test]
fn a_pin_that_becomes_edge_triggered_has_no_interrupt_to_be_ended() {
    for (trigger, waits) in [(reg::ENTRY_LEVEL as u32, true), (0, false)] {
        let mut ioapic = open(true);
        ioapic.entries[3] |= reg::ENTRY_REMOTE_IRR;
        write(&mut ioapic, reg::REDIRECTION + 6, 0x52 | trigger);
        assert_eq!(ioapic.entries[3] & reg::ENTRY_REMOTE_IRR != 0, waits);
        // Its upper half says nothing about triggers.
        ioapic.entries[3] |= reg::ENTRY_LEVEL | reg::ENTRY_REMOTE_IRR;
        write(&mut ioapic, reg::REDIRECTION + 7, 0x0500_0000);
        assert!(ioapic.entries[3] & reg::ENTRY_REMOTE_IRR != 0);
    }
}

/// A redirection entry with one of a few vectors, and any remote IRR (bit 14), trigger mode (15) and mask (16).
fn entry() -> impl Strategy<Value = u64> {
    (0x50u64..0x54, 0u64..8).prop_map(|(vector, gates)| vector | gates << 14)
}

proptest! {
    /// The bits of the 82093AA datasheet decide which pins have what to do with a vector.
    #[test]
    fn entries_decide_by_their_bits(entries in prop::array::uniform24(entry()), asserted in any::<u32>()) {
        let ioapic = Ioapic { entries, asserted, ..Ioapic::default() };
        let has = |pin: u32, bit: u32| entries[pin as usize] >> bit & 1 == 1;
        for vector in 0x50..0x54 {
            let pins = || (0..24).filter(|&pin| entries[pin as usize] as u8 == vector);
            prop_assert_eq!(ioapic.owns(vector), pins().any(|pin| has(pin, 15)), "{:#x}", vector);
            let waiting = pins().filter(|&pin| has(pin, 14));
            prop_assert!(ioapic.waiting_for_end(vector).eq(waiting), "{:#x}", vector);
        }
        for pin in 0..24 {
            let open = has(pin, 15) && !has(pin, 14) && !has(pin, 16);
            prop_assert_eq!(ioapic.wants_to_send(pin), open && asserted >> pin & 1 == 1, "pin {}", pin);
        }
    }
}
