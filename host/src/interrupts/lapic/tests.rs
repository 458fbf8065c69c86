//! Tests of the register file alone.

use holdfast_abi::lapic as reg;
use holdfast_abi::msr;
use proptest::prelude::*;

use super::*;

const BASE: TimerBase = TimerBase {
    tsc_hz: 2_000_000_000,
    min_period_ns: 500_000,
};

fn enabled() -> Lapic {
    let mut lapic = Lapic::new(3);
    lapic.write(reg::SVR, 0x1ff, 0, &BASE);
    lapic
}

#[test]
fn the_base_register_follows_the_state_diagram() {
    let (off, x, x2) = (0, msr::APIC_BASE_ENABLE, msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC);
    let cases = [
        (x, off, true),
        (x, x, true),
        (x, x2, true),
        (x2, x2, true),
        (x2, x, false),
        (x2, off, true),
        (off, x, true),
        (off, x2, false),
        (x, msr::APIC_BASE_X2APIC, false),
        (x, x | 1 << 40, false),
    ];
    for (from, to, legal) in cases {
        let mut lapic = Lapic::new(3);
        assert!(lapic.set_base(msr::APIC_BASE_ADDRESS | from), "{from:#x}");
        assert_eq!(
            lapic.set_base(msr::APIC_BASE_ADDRESS | to),
            legal,
            "{from:#x} to {to:#x}"
        );
    }
}

#[test]
fn ids_follow_the_mode() {
    let mut lapic = Lapic::new(0x123);
    assert_eq!(lapic.read(reg::ID, 0), 0x2300_0000);
    assert!(lapic.set_base(msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC));
    assert_eq!(lapic.read(reg::ID, 0), 0x123);
    assert_eq!(lapic.read(reg::LDR, 0), 0x12 << 16 | 1 << 3);
}

#[test]
fn divide_configurations_are_the_manuals() {
    let cases = [(0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (10, 128), (11, 1)];
    for (bits, divider) in cases {
        let mut lapic = enabled();
        lapic.write(reg::TIMER_DIVIDE, bits, 0, &BASE);
        lapic.write(reg::TIMER_INITIAL, 1_000, 0, &BASE);
        assert_eq!(lapic.timer.deadline, Some(1_000 * divider), "{bits}");
        assert_eq!(lapic.read(reg::TIMER_CURRENT, 500 * divider), 500, "{bits}");
    }
}

#[test]
fn a_late_periodic_timer_counts_once_and_keeps_its_phase() {
    let mut lapic = enabled();
    lapic.write(reg::LVT_TIMER, reg::LVT_TIMER_PERIODIC | 0x40, 0, &BASE);
    lapic.write(reg::TIMER_DIVIDE, 11, 0, &BASE);
    lapic.write(reg::TIMER_INITIAL, 1_000_000, 0, &BASE);
    assert_eq!(lapic.timer_expired(3_400_000), Some(0x40));
    assert_eq!(lapic.timer.deadline, Some(4_000_000));
}

#[test]
fn software_disable_masks_and_ignores() {
    let mut lapic = enabled();
    lapic.write(reg::LVT_TIMER, 0x40, 0, &BASE);
    lapic.write(reg::SVR, 0xff, 0, &BASE);
    assert!(!lapic.accept(0x50, false));
    assert_eq!(lapic.read(reg::LVT_TIMER, 0) & reg::LVT_MASKED, reg::LVT_MASKED);
    lapic.write(reg::SVR, 0x1ff, 0, &BASE);
    assert_eq!(lapic.deliverable(), None);
}

#[test]
fn errors_interrupt_if_asked_to() {
    let mut lapic = enabled();
    lapic.write(reg::LVT_ERROR, 0xfe, 0, &BASE);
    lapic.receive_error();
    assert_eq!(lapic.deliverable(), Some(0xfe));
    assert_eq!(lapic.read(reg::ESR, 0), 0, "latched by a write only");
    lapic.write(reg::ESR, 0, 0, &BASE);
    assert_eq!(lapic.read(reg::ESR, 0), reg::ESR_RECEIVE_ILLEGAL_VECTOR);
}

#[test]
fn what_hardware_has_taken_is_not_ended_unseen() {
    let mut lapic = enabled();
    lapic.accept(0x31, false);
    lapic.take(0x31);
    assert!(lapic.can_end_unseen(false));
    // Hardware ends 0x31, takes a level-triggered interrupt, and is switched off again.
    lapic.hardware_switched();
    lapic.page.end_service();
    lapic.page.request(0x52, true);
    lapic.page.begin_service(0x52);
    lapic.hardware_switched();
    assert!(!lapic.can_end_unseen(false), "0x52 is level-triggered");
}

#[test]
fn a_lapic_that_is_off_delivers_nothing_that_hardware_puts_in_its_page() {
    let base = msr::APIC_BASE_ADDRESS;
    let mut lapic = enabled();
    assert!(lapic.set_base(base));
    lapic.page.request(0x51, false);
    lapic.hardware_switched();
    assert_eq!(lapic.deliverable(), None);
    lapic.page.store(reg::TPR, 0xf0);
    assert!(!lapic.is_held_back_by_task());
    assert!(lapic.set_base(base | msr::APIC_BASE_ENABLE));
    lapic.write(reg::SVR, 0x1ff, 0, &BASE);
    assert_eq!(lapic.deliverable(), None, "it begins without interrupts");
}

#[test]
fn an_error_is_reported_once() {
    let mut lapic = enabled();
    lapic.receive_error();
    lapic.write(reg::ESR, 0, 0, &BASE);
    lapic.write(reg::ESR, 0, 0, &BASE);
    assert_eq!(lapic.read(reg::ESR, 0), 0);
}

#[test]
fn the_divider_changes_only_a_count_that_runs() {
    let mut lapic = enabled();
    lapic.write(reg::TIMER_DIVIDE, 11, 0, &BASE);
    lapic.write(reg::TIMER_INITIAL, 1_000, 0, &BASE);
    assert_eq!(lapic.write(reg::TIMER_DIVIDE, 0, 300, &BASE), Action::Timer);
    assert_eq!(lapic.timer.deadline, Some(2_300));
    lapic.timer_expired(2_300);
    assert_eq!(lapic.write(reg::TIMER_DIVIDE, 11, 3_000, &BASE), Action::None);
    assert_eq!(lapic.timer.deadline, None, "the count is over");
    lapic.write(reg::LVT_TIMER, reg::LVT_TIMER_TSC_DEADLINE | 0x40, 0, &BASE);
    lapic.write_tsc_deadline(20_000, 4_000, &BASE);
    assert_eq!(lapic.write(reg::TIMER_DIVIDE, 0, 5_000, &BASE), Action::None);
    assert_eq!(lapic.timer.deadline, Some(10_000), "a deadline is no count");
}

#[test]
fn only_an_end_that_changes_nothing_else_goes_unseen() {
    let taken = |level| {
        let mut lapic = enabled();
        lapic.accept(0x51, level);
        lapic.take(0x51);
        lapic
    };
    assert!(!enabled().can_end_unseen(false), "no interrupt is in service");
    assert!(taken(false).can_end_unseen(false));
    assert!(!taken(true).can_end_unseen(false), "it is level-triggered");
    for next in [0x31, 0x61] {
        let mut lapic = taken(false);
        lapic.accept(next, false);
        assert!(!lapic.can_end_unseen(false), "{next:#x} is requested");
    }
    let mut lapic = taken(false);
    lapic.ended();
    assert!(!lapic.can_end_unseen(false), "it has ended");
}

#[test]
fn a_lapic_is_loaded_as_it_was_saved() {
    for mode in [0, msr::APIC_BASE_X2APIC] {
        let mut from = enabled();
        assert!(from.set_base(0x1000_0000 | msr::APIC_BASE_ENABLE | mode));
        from.accept(0x31, false);
        from.receive_error();
        let (mut page, base, errors) = (from.page(), from.base, from.errors);
        if mode != 0 {
            // A saved ID is not believed in x2APIC mode.
            (page[reg::ID as usize / 16], page[reg::LDR as usize / 16]) = (77, 77);
        }
        let mut to = enabled();
        to.accept(0x91, false);
        to.take(0x91);
        assert_eq!(to.deliverable(), None);
        to.load(&page, base, errors);
        assert_eq!((to.page(), to.base, to.errors), (from.page(), base, errors));
        assert_eq!(to.deliverable(), Some(0x31));
        to.take(0x31);
        to.load(&enabled().page(), base, errors);
        assert!(!to.can_end_unseen(false), "what was taken before is unknown");
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Accept(u8),
    Take,
    Eoi,
    Tpr(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (16u8..=255).prop_map(Act::Accept),
        2 => Just(Act::Take),
        2 => Just(Act::Eoi),
        1 => any::<u8>().prop_map(Act::Tpr),
    ]
}

proptest! {
    /// Compares with sets of vectors: the highest pending vector is delivered if its class is above the task's and the
    /// class in service.
    #[test]
    fn priorities_are_those_of_the_model(acts in proptest::collection::vec(act(), 0..200)) {
        let mut lapic = enabled();
        let (mut pending, mut serving, mut tpr) = (alloc::collections::BTreeSet::new(), alloc::collections::BTreeSet::new(), 0u8);
        for act in acts {
            match act {
                Act::Accept(vector) => prop_assert_eq!(lapic.accept(vector, false), pending.insert(vector)),
                Act::Take => {
                    if let Some(vector) = lapic.deliverable() {
                        lapic.take(vector);
                        prop_assert!(pending.remove(&vector));
                        serving.insert(vector);
                    }
                }
                Act::Eoi => {
                    lapic.write(reg::EOI, 0, 0, &BASE);
                    serving.pop_last();
                }
                Act::Tpr(value) => {
                    lapic.write(reg::TPR, u32::from(value), 0, &BASE);
                    tpr = value;
                }
            }
            let class = (tpr >> 4).max(serving.last().map_or(0, |vector: &u8| vector >> 4));
            let expected = pending.last().copied().filter(|vector| vector >> 4 > class);
            prop_assert_eq!(lapic.deliverable(), expected);
            prop_assert_eq!(lapic.read(reg::PPR, 0) >> 4, u32::from(class));
        }
    }
}

#[test]
fn the_arbitration_priority_is_the_tasks_only_above_the_class_in_service() {
    // SDM volume 3, "Arbitration Priority Register": task priority, highest requested, highest in service.
    for (task, requested, in_service, expected) in [
        (0x35, None, None, 0x35),
        (0x35, Some(0x3f), None, 0x35),
        (0x35, Some(0x41), None, 0x40),
        (0x35, None, Some(0x31), 0x30),
        (0x45, Some(0x3f), Some(0x31), 0x45),
        (0x45, Some(0x51), Some(0x41), 0x50),
        (0x65, None, Some(0xc1), 0x40),
        (0x05, None, None, 0x00),
    ] {
        let mut lapic = enabled();
        lapic.write(reg::TPR, task, 0, &BASE);
        for (at, vector) in [(reg::IRR, requested), (reg::ISR, in_service)] {
            if let Some(vector) = vector {
                lapic.page.insert(at, vector);
            }
        }
        assert_eq!(
            lapic.arbitration_priority(),
            expected,
            "{task:#x}, {requested:x?}, {in_service:x?}"
        );
    }
}

#[test]
fn the_deadline_register_keeps_its_value_until_it_expires_and_only_in_its_mode() {
    let mut lapic = enabled();
    assert_eq!(lapic.tsc_deadline(), 0);
    lapic.write_tsc_deadline(5_000, 0, &BASE);
    assert_eq!(lapic.timer.deadline, None, "the register is ignored in other modes");
    lapic.write(reg::LVT_TIMER, reg::LVT_TIMER_TSC_DEADLINE | 0x40, 0, &BASE);
    // The counter has 2 GHz.
    assert_eq!(BASE.tsc(1_000), 2_000);
    lapic.write_tsc_deadline(5_000, 100, &BASE);
    assert_eq!((lapic.tsc_deadline(), lapic.timer.deadline), (5_000, Some(2_500)));
    lapic.write_tsc_deadline(5_001, 100, &BASE);
    assert_eq!(lapic.timer.deadline, Some(2_501), "rounded up");
    lapic.write_tsc_deadline(10, 100, &BASE);
    assert_eq!(
        lapic.timer.deadline,
        Some(100),
        "a deadline in the past expires at once"
    );
    assert_eq!(lapic.timer_expired(100), Some(0x40));
    assert_eq!((lapic.tsc_deadline(), lapic.timer.deadline), (0, None));
    lapic.write_tsc_deadline(5_000, 100, &BASE);
    lapic.write_tsc_deadline(0, 100, &BASE);
    assert_eq!((lapic.tsc_deadline(), lapic.timer.deadline), (0, None));
}

/// Returns whether one of the lower `bits` bits is set in `a` and in `b`.
fn shares_a_bit(a: u32, b: u32, bits: u32) -> bool {
    (0..bits).any(|bit| a >> bit & 1 == 1 && b >> bit & 1 == 1)
}

#[test]
fn a_logical_destination_names_the_ids_of_its_model() {
    // SDM volume 3, "Logical Destination Mode".
    for id in 0..=255u32 {
        let mut lapic = enabled();
        lapic.write(reg::LDR, id << 24, 0, &BASE);
        for (dfr, is_flat) in [(reg::DFR_FLAT, true), (0x0fff_ffff, false)] {
            lapic.write(reg::DFR, dfr, 0, &BASE);
            for destination in 0..=255 {
                let expected = if is_flat {
                    shares_a_bit(id, destination, 8)
                } else {
                    id / 16 == destination / 16 && shares_a_bit(id, destination, 4)
                };
                assert_eq!(
                    lapic.has_logical_id(destination, false),
                    expected,
                    "{id:#x}, {destination:#x}"
                );
            }
            assert!(!lapic.has_logical_id(id << 24 | id, true), "x2APIC's format");
        }
    }
    for id in [0, 5, 15, 16, 0x123] {
        let mut lapic = Lapic::new(id);
        assert!(lapic.set_base(msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC));
        for cluster in [0, 1, 0x12, 0x1012] {
            for members in [0, 1, 0x20, 0x8000, 0xffff, 0xffdf, 0x7fff] {
                let expected = id / 16 == cluster && members >> (id % 16) & 1 == 1;
                assert_eq!(lapic.has_logical_id(cluster << 16 | members, true), expected);
            }
        }
    }
}

#[test]
fn its_page_is_where_the_base_register_says_and_only_in_xapic_mode() {
    let home = msr::APIC_BASE_ADDRESS;
    for base in [home, 0x1_2345_6000] {
        for (mode, answers) in [
            (0, false),
            (msr::APIC_BASE_ENABLE, true),
            (msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC, false),
        ] {
            let mut lapic = Lapic::new(3);
            assert!(lapic.set_base(base | mode));
            assert_eq!(lapic.is_at_home(), base == home);
            assert_eq!(lapic.has_page(), answers && base == home, "{base:#x} | {mode:#x}");
        }
    }
}

#[test]
fn an_access_to_no_register_is_an_error_at_multiples_of_16_only() {
    // SDM volume 3, "Local APIC Register Address Map".
    let registers = [0x20, 0x30, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0, 0x280, 0x3e0];
    let ranges = [0x100..=0x270, 0x300..=0x390];
    for offset in 0..0x400 {
        let exists = registers.contains(&offset) || ranges.iter().any(|range| range.contains(&offset));
        let mut lapic = enabled();
        let found = lapic.note_access(offset) != Action::None;
        assert_eq!(found, offset % 16 == 0 && !exists, "{offset:#x}");
        lapic.write(reg::ESR, 0, 0, &BASE);
        let error = lapic.read(reg::ESR, 0);
        assert_eq!(error, if found { reg::ESR_ILLEGAL_REGISTER } else { 0 }, "{offset:#x}");
    }
}
