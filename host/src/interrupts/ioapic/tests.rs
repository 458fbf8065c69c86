//! Tests of the register file alone.

use holdfast_abi::ioapic as reg;

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
