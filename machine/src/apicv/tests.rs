//! The hardware compared with its manual, over plain memory.

use std::collections::BTreeSet;

use holdfast_abi::lapic as reg;
use holdfast_abi::posted::{self, Control, PidPointer};
use holdfast_abi::{Memory, Vmcs, vmcs};
use proptest::prelude::*;

use super::*;
use crate::ram::Ram;

const TABLE: u64 = 0x1000;
const DESCRIPTORS: u64 = 0x2000;
const PAGES: u64 = 0x10_0000;

fn descriptor(vcpu: u64) -> u64 {
    DESCRIPTORS + vcpu * posted::DESCRIPTOR_BYTES
}

/// Returns the memory of a VM of 4 vCPUs, vCPU `n` running on host CPU `16 + n`.
fn vm() -> Ram {
    let ram = Ram::new(|_| true);
    for vcpu in 0..4 {
        ram.store64(TABLE + vcpu * 8, PidPointer::new(descriptor(vcpu)).0);
        let control = Control::new(posted::NOTIFICATION_VECTOR, 16 + vcpu as u32);
        ram.store64(descriptor(vcpu) + posted::CONTROL, control.0);
    }
    ram
}

fn control(vcpu: u64) -> Vmcs {
    Vmcs {
        pin: vmcs::PIN_POSTED_INTERRUPTS,
        secondary: vmcs::VIRTUALIZE_APIC_ACCESSES
            | vmcs::APIC_REGISTER_VIRTUALIZATION
            | vmcs::VIRTUAL_INTERRUPT_DELIVERY,
        tertiary: vmcs::IPI_VIRTUALIZATION,
        virtual_apic_page: PAGES + vcpu * 4096,
        descriptor: descriptor(vcpu),
        notification_vector: posted::NOTIFICATION_VECTOR,
        pid_table: TABLE,
        last_pid_index: 3,
        ..Vmcs::default()
    }
}

fn has(ram: &Ram, vcpu: u64, field: u32, vector: u8) -> bool {
    let address = PAGES + vcpu * 4096 + u64::from(field + u32::from(vector) / 32 * 16);
    ram.load32(address).is_some_and(|bits| bits >> (vector % 32) & 1 != 0)
}

fn send(ram: &Ram, vmcs: &mut Vmcs, destination: u32, low: u32) -> WriteOutcome {
    let mut apic = Apicv::new(ram, vmcs).expect("it is on");
    assert_eq!(apic.write(reg::ICR_HIGH, destination << 24), WriteOutcome::Done);
    apic.write(reg::ICR_LOW, low)
}

#[test]
fn a_unicast_notifies_where_the_target_runs_and_arrives_without_exits() {
    let ram = vm();
    let (mut sender, mut target) = (control(0), control(2));
    let notification = Notification {
        vector: posted::NOTIFICATION_VECTOR,
        destination: 18,
    };
    assert_eq!(
        send(&ram, &mut sender, 2, 0xfd),
        WriteOutcome::Posted(Some(notification))
    );
    assert_eq!(
        send(&ram, &mut sender, 2, 0x51),
        WriteOutcome::Posted(None),
        "a notification is outstanding"
    );
    let mut apic = Apicv::new(&ram, &mut target).expect("it is on");
    assert_eq!(apic.pending(), None);
    assert!(apic.notified(posted::NOTIFICATION_VECTOR));
    assert_eq!(apic.pending(), Some(0xfd));
    assert_eq!(apic.take(), 0xfd);
    assert_eq!(apic.pending(), None, "0x51 is of a lower class");
    assert_eq!(apic.write(reg::EOI, 0), WriteOutcome::Evaluate);
    assert_eq!(apic.pending(), Some(0x51));
    assert!(!has(&ram, 2, reg::ISR, 0xfd) && has(&ram, 2, reg::IRR, 0x51));
    assert_eq!(
        send(&ram, &mut sender, 2, 0x61),
        WriteOutcome::Posted(Some(notification)),
        "the last notification was processed"
    );
}

#[test]
fn without_register_virtualization_only_three_registers_are_virtual() {
    let ram = vm();
    let whole = control(0).secondary;
    for secondary in [whole, whole & !vmcs::APIC_REGISTER_VIRTUALIZATION] {
        let mut vmcs = control(0);
        vmcs.secondary = secondary;
        let all = secondary == whole;
        for offset in (0..0x400).step_by(4) {
            let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
            let is_register = offset % 16 == 0 && all;
            let reads = offset == reg::TPR || is_register && vmcs::is_virtualized_read(offset);
            let stored = apic.get(offset);
            let expected = if reads {
                Ok(stored)
            } else {
                Err(Exit::Access { offset, write: false })
            };
            assert_eq!(apic.read(offset), expected, "{offset:#x}");
            let writes = matches!(offset, reg::TPR | reg::EOI | reg::ICR_LOW)
                || is_register && vmcs::is_virtualized_write(offset);
            let exit = WriteOutcome::Exit(Exit::Access { offset, write: true });
            assert_eq!(apic.write(offset, 0x1234) != exit, writes, "{offset:#x}");
        }
    }
}

#[test]
fn a_value_is_stored_and_read_back() {
    let ram = vm();
    let mut vmcs = control(0);
    let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
    apic.write(reg::TPR, 0x1_2347);
    assert_eq!((apic.read(reg::TPR), apic.get(reg::PPR)), (Ok(0x47), 0x47));
    let exit = WriteOutcome::Exit(Exit::Write { offset: reg::LVT_TIMER });
    assert_eq!(apic.write(reg::LVT_TIMER, 0x51), exit);
    assert_eq!(apic.read(reg::LVT_TIMER), Ok(0x51));
    assert_eq!(
        apic.write_icr(0x0000_0001_0000_000f),
        WriteOutcome::Exit(Exit::Write { offset: reg::ICR_LOW })
    );
    assert_eq!(apic.read_msr(reg::ICR_LOW), Some(0x0000_0001_0000_000f));
    assert_eq!(apic.read_msr(reg::TPR), Some(0x47));
    assert_eq!(apic.read_msr(reg::TIMER_CURRENT), None);
}

#[test]
fn wrmsr_is_virtualized_for_four_registers_and_values_that_fit() {
    let cases = [
        (reg::TPR, 0xff, true),
        (reg::TPR, 0x100, false),
        (reg::EOI, 0, true),
        (reg::EOI, 1, false),
        (reg::SELF_IPI, 0xff, true),
        (reg::SELF_IPI, 0x100, false),
        (reg::ICR_LOW, u64::MAX, true),
        (reg::SVR, 0x1ff, false),
    ];
    for (offset, value, by_hardware) in cases {
        let (ram, mut vmcs) = (vm(), control(0));
        let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
        assert_eq!(
            apic.write_msr(offset, value).is_some(),
            by_hardware,
            "{offset:#x} {value:#x}"
        );
    }
}

#[test]
fn a_self_ipi_needs_a_legal_vector() {
    for (value, legal) in [(0x10, true), (0xff, true), (0x0f, false), (0x110, false)] {
        let (ram, mut vmcs) = (vm(), control(0));
        let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
        let outcome = apic.write_self_ipi(value);
        assert_eq!(outcome == WriteOutcome::Evaluate, legal, "{value:#x}");
        assert_eq!(has(&ram, 0, reg::IRR, value as u8), legal, "{value:#x}");
        // The lowest legal vector can be sent by ICR, too.
        let low = reg::ICR_SHORTHAND_SELF | value & 0xff;
        let (ram, mut vmcs) = (vm(), control(0));
        let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
        let sent = apic.write(reg::ICR_LOW, low) == WriteOutcome::Evaluate;
        assert_eq!(sent, value & 0xff >= 0x10, "{value:#x}");
    }
}

#[test]
fn an_entry_computes_the_priority_from_the_page() {
    let ram = vm();
    let mut vmcs = control(0);
    let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
    apic.set(reg::TPR, 0xffff_ff35);
    apic.enter();
    assert_eq!(apic.get(reg::PPR), 0x35);
    apic.self_ipi(0x47);
    assert_eq!(apic.take(), 0x47);
    assert_eq!(apic.get(reg::PPR), 0x40);
    apic.set(reg::TPR, 0x4f);
    apic.enter();
    assert_eq!(apic.get(reg::PPR), 0x4f, "of equal classes the task's");
    apic.set(reg::TPR, 0x3f);
    apic.enter();
    assert_eq!(apic.get(reg::PPR), 0x40);
}

#[test]
fn a_suppressed_notification_stays_posted() {
    let ram = vm();
    ram.set32(descriptor(1) + posted::CONTROL, Control::SN as u32);
    assert_eq!(send(&ram, &mut control(0), 1, 0x31), WriteOutcome::Posted(None));
    let (word, bit) = posted::pir_bit(0x31);
    assert_eq!(ram.load32(descriptor(1) + word), Some(bit));
    assert!(!Control(ram.load64(descriptor(1) + posted::CONTROL).expect("memory")).is_on());
}

#[test]
fn a_sleeper_is_reached_by_the_vector_in_its_descriptor() {
    let ram = vm();
    ram.store64(
        descriptor(3) + posted::CONTROL,
        Control::new(posted::WAKEUP_VECTOR, 19).0,
    );
    let expected = Notification {
        vector: posted::WAKEUP_VECTOR,
        destination: 19,
    };
    assert_eq!(
        send(&ram, &mut control(0), 3, 0x31),
        WriteOutcome::Posted(Some(expected))
    );
}

#[test]
fn ipis_that_hardware_does_not_send_trap_with_the_value_stored() {
    let ram = vm();
    let trap = WriteOutcome::Exit(Exit::Write { offset: reg::ICR_LOW });
    let mut sender = control(0);
    for low in [
        0x0f,
        0xfd | reg::ICR_SHORTHAND_OTHERS,
        0xfd | reg::ICR_SHORTHAND_ALL,
        0xfd | reg::ICR_LOGICAL,
        0xfd | reg::DeliveryMode::Nmi.bits(),
        0xfd | reg::ICR_LEVEL,
    ] {
        assert_eq!(send(&ram, &mut sender, 1, low), trap, "{low:#x}");
        assert_eq!(ram.load32(PAGES + u64::from(reg::ICR_LOW)), Some(low));
    }
    assert_eq!(send(&ram, &mut sender, 4, 0xfd), trap, "after the end of the table");
    ram.store64(TABLE + 8, 0);
    assert_eq!(send(&ram, &mut sender, 1, 0xfd), trap, "not valid");
    sender.tertiary = 0;
    assert_eq!(send(&ram, &mut sender, 2, 0xfd), trap, "IPI virtualization is off");
    assert_eq!(
        send(&ram, &mut sender, 2, 0xfd | reg::ICR_SHORTHAND_SELF),
        WriteOutcome::Evaluate,
        "self-IPIs come with delivery"
    );
    assert!(has(&ram, 0, reg::IRR, 0xfd));
}

#[test]
fn another_vector_is_no_notification() {
    let ram = vm();
    let mut vmcs = control(0);
    let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
    assert!(!apic.notified(posted::WAKEUP_VECTOR));
}

/// An action of a guest or of a sender.
#[derive(Clone, Copy, Debug)]
enum Act {
    Post(u8),
    Notify,
    Take,
    Write(u32, u32),
    Read(u32),
    Icr(u64),
    SelfIpi(u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (16u8..).prop_map(Act::Post),
        3 => Just(Act::Notify),
        4 => Just(Act::Take),
        2 => (0u32..16).prop_map(|class| Act::Write(reg::TPR, class << 4)),
        4 => Just(Act::Write(reg::EOI, 0)),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(offset, value)| Act::Write(offset & 0xffc, value)),
        1 => any::<u32>().prop_map(Act::Read),
        1 => any::<u64>().prop_map(Act::Icr),
        1 => any::<u32>().prop_map(Act::SelfIpi),
    ]
}

proptest! {
    /// For any actions: each posted vector is taken once for each time that it was not pending yet, no other vector is
    /// taken, each taken vector is above the priority at that time, and RVI and SVI match the page.
    #[test]
    fn nothing_posted_is_lost_or_doubled(acts in proptest::collection::vec(act(), 1..200)) {
        let ram = vm();
        let mut vmcs = control(0);
        let mut outstanding = BTreeSet::new();
        for act in acts {
            let own = post_of_own(&ram);
            let mut apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
            match act {
                Act::Post(vector) => {
                    post(&ram, descriptor(0), vector);
                    outstanding.insert(vector);
                }
                Act::Notify => prop_assert!(apic.notified(posted::NOTIFICATION_VECTOR)),
                Act::Take => if let Some(vector) = apic.pending() {
                    prop_assert!(u32::from(vector) & 0xf0 > apic.get(reg::TPR) & 0xf0);
                    prop_assert_eq!(apic.take(), vector);
                    // Posted again before the notification was processed: it stays outstanding.
                    let expected = if own.contains(&vector) { outstanding.contains(&vector) } else { outstanding.remove(&vector) };
                    prop_assert!(expected, "vector {:#x} was never posted", vector);
                },
                Act::Write(offset, value) => note(&mut outstanding, apic.write(offset, value), &ram),
                Act::Read(offset) => { let _ = apic.read(offset); }
                Act::Icr(value) => note(&mut outstanding, apic.write_icr(value), &ram),
                Act::SelfIpi(value) => note(&mut outstanding, apic.write_self_ipi(value), &ram),
            }
            let apic = Apicv::new(&ram, &mut vmcs).expect("it is on");
            prop_assert_eq!(apic.vmcs.status.requesting(), apic.highest(reg::IRR));
            prop_assert_eq!(apic.vmcs.status.servicing(), apic.highest(reg::ISR));
        }
        // At the end the outstanding vectors are exactly those that are posted or requested.
        let own = post_of_own(&ram);
        for vector in 16..=255u8 {
            prop_assert_eq!(outstanding.contains(&vector), own.contains(&vector) || has(&ram, 0, reg::IRR, vector), "{:#x}", vector);
        }
    }
}

/// Returns the vectors that are posted to vCPU 0 and not yet processed.
fn post_of_own(ram: &Ram) -> BTreeSet<u8> {
    let is_posted = |vector: &u8| {
        let (word, bit) = posted::pir_bit(*vector);
        ram.load32(descriptor(0) + word).is_some_and(|bits| bits & bit != 0)
    };
    (0..=255).filter(is_posted).collect()
}

/// Adds the vectors of self-IPIs and of IPIs to vCPU 0 itself to the outstanding ones.
fn note(outstanding: &mut BTreeSet<u8>, _: WriteOutcome, ram: &Ram) {
    for vector in 16..=255 {
        if has(ram, 0, reg::IRR, vector) {
            outstanding.insert(vector);
        }
    }
    outstanding.extend(post_of_own(ram));
}
