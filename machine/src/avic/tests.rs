//! The hardware compared with its manual, over plain memory.

use holdfast_abi::avic::{IncompleteIpi, IpiFailure, LogicalEntry, PhysicalEntry, Unaccelerated};
use holdfast_abi::lapic as reg;
use holdfast_abi::{Memory, Vmcb, vmcb};
use proptest::prelude::*;

use super::*;
use crate::ram::Ram;

const LOGICAL: u64 = 0x1000;
const PHYSICAL: u64 = 0x2000;
const PAGES: u64 = 0x10_0000;

fn page(id: u64) -> u64 {
    PAGES + id * 4096
}

/// Returns memory with the tables and the backing pages of `pages` vCPUs.
fn memory(pages: u64) -> Ram {
    Ram::new(move |address| {
        (LOGICAL..PHYSICAL + 0x2000).contains(&address) || (PAGES..PAGES + pages * 4096).contains(&address)
    })
}

fn pages(ram: &Ram) -> u64 {
    (0..).take_while(|&id| ram.load32(page(id)).is_some()).count() as u64
}

/// Returns the memory of a VM in flat mode whose vCPU `n` has logical ID `1 << n` and runs on host CPU `16 + n`.
fn vm(vcpus: u64) -> Ram {
    let ram = memory(vcpus);
    for id in 0..vcpus {
        let entry = PhysicalEntry::new(page(id)).running(16 + id as u32);
        ram.store64(PHYSICAL + id * 8, entry.0);
        ram.store32(page(id) + u64::from(reg::DFR), reg::DFR_FLAT);
        if id < 8 {
            ram.store32(LOGICAL + id * 4, LogicalEntry::new(id as u32).0);
        }
    }
    ram
}

fn control(id: u64, max_index: u64) -> Vmcb {
    let mut vmcb = Vmcb::new();
    vmcb.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE);
    vmcb.write64(vmcb::AVIC_BACKING_PAGE, page(id));
    vmcb.write64(vmcb::AVIC_LOGICAL_TABLE, LOGICAL);
    vmcb.write64(vmcb::AVIC_PHYSICAL_TABLE, PHYSICAL | max_index);
    vmcb
}

fn avic<'m>(ram: &'m Ram, vmcb: &Vmcb) -> Avic<'m, Ram> {
    Avic::new(ram, vmcb, AvicHardware::default()).expect("it is on")
}

/// Sends `icr`. Returns the host CPUs whose doorbells rang, the vCPUs with the vector pending, and the exit.
fn send(ram: &Ram, sender: u64, icr: u64) -> (Vec<u32>, Vec<u64>, Option<IncompleteIpi>) {
    let vmcb = control(sender, pages(ram) - 1);
    let avic = avic(ram, &vmcb);
    let mut rung = Vec::new();
    let exit = match avic.resolve(icr) {
        Ok(targets) => avic.post(&targets, |host| rung.push(host)).exit,
        Err(exit) => Some(exit),
    };
    let (word, bit) = bit_of(0, reg::IRR, icr as u8);
    let pending = (0..pages(ram)).filter(|&id| ram.load32(page(id) | word).unwrap_or(0) & bit != 0);
    let pending = pending.collect();
    (rung, pending, exit)
}

fn to(destination: u64, vector: u64) -> u64 {
    destination << 56 | vector
}

#[test]
fn the_access_matrix_is_the_specifications() {
    use Access::{Accelerated, Direct, Fault, Trap};
    let traps = [
        reg::ID,
        reg::RRD,
        reg::LDR,
        reg::DFR,
        reg::SVR,
        reg::ESR,
        reg::LVT_TIMER,
        reg::LVT_THERMAL,
        reg::LVT_PERFORMANCE,
        reg::LVT_LINT0,
        reg::LVT_LINT1,
        reg::LVT_ERROR,
        reg::TIMER_INITIAL,
        reg::TIMER_DIVIDE,
    ];
    for offset in (0..0x1000).step_by(16) {
        let expected = match offset {
            reg::TPR | reg::EOI | reg::ICR_LOW => (Direct, Accelerated),
            reg::ICR_HIGH => (Direct, Direct),
            _ if traps.contains(&offset) => (Direct, Trap),
            reg::VERSION | reg::PPR | reg::ISR..=0x270 => (Direct, Fault),
            _ => (Fault, Fault),
        };
        assert_eq!((access(offset, false), access(offset, true)), expected, "{offset:#x}");
    }
    assert_eq!(access(0x84, true), Fault);
}

#[test]
fn a_trap_has_stored_the_value_and_a_fault_has_not() {
    let ram = vm(1);
    let vmcb = control(0, 0);
    let avic = avic(&ram, &vmcb);
    assert_eq!(
        avic.write(reg::LDR, 0x0400_0000),
        WriteOutcome::Exit(Unaccelerated::new(reg::LDR, true, 0))
    );
    assert_eq!(avic.read(reg::LDR), Ok(0x0400_0000));
    assert!(matches!(avic.write(reg::IRR, !0), WriteOutcome::Exit(_)));
    assert_eq!(avic.read(reg::IRR), Ok(0));
    assert!(avic.read(reg::TIMER_CURRENT).is_err());
}

#[test]
fn an_ipi_to_a_running_target_sets_irr_and_rings() {
    let ram = vm(4);
    assert_eq!(send(&ram, 0, to(2, 0xfd)), (vec![18], vec![2], None));
}

#[test]
fn an_ipi_to_a_stopped_target_sets_irr_and_exits() {
    let ram = vm(4);
    ram.store64(PHYSICAL + 16, PhysicalEntry::new(page(2)).0);
    let icr = to(2, 0xfd);
    let exit = IncompleteIpi::new(icr, IpiFailure::TargetNotRunning, 2);
    assert_eq!(send(&ram, 0, icr), (vec![], vec![2], Some(exit)));
}

#[test]
fn broadcasts_skip_invalid_entries() {
    let ram = vm(4);
    ram.store64(PHYSICAL + 8, 0);
    let all = to(0xff, 0x40);
    assert_eq!(send(&ram, 0, all), (vec![18, 19], vec![0, 2, 3], None));
    let others = 0x41 | u64::from(reg::ICR_SHORTHAND_OTHERS);
    assert_eq!(send(&ram, 3, others), (vec![16, 18], vec![0, 2], None));
    let every = 0x42 | u64::from(reg::ICR_SHORTHAND_ALL);
    assert_eq!(send(&ram, 3, every).1, vec![0, 2, 3]);
    let itself = 0x43 | u64::from(reg::ICR_SHORTHAND_SELF);
    assert_eq!(send(&ram, 3, itself), (vec![], vec![3], None));
}

#[test]
fn logical_destinations_go_through_the_table() {
    let ram = vm(4);
    let logical = u64::from(reg::ICR_LOGICAL);
    assert_eq!(
        send(&ram, 0, to(0b1010, 0x50) | logical),
        (vec![17, 19], vec![1, 3], None)
    );
    // One bit without a valid entry stops the whole IPI.
    let (rung, pending, exit) = send(&ram, 0, to(0b1_0010, 0x51) | logical);
    assert_eq!((rung, pending), (vec![], vec![]));
    assert_eq!(exit.map(|exit| (exit.id(), exit.index())), Some((2, 4)));
    // Cluster mode: member 0 of cluster 1 is entry 4.
    ram.store32(page(0) + u64::from(reg::DFR), 0x0fff_ffff);
    ram.store32(LOGICAL + 16, LogicalEntry::new(3).0);
    assert_eq!(send(&ram, 0, to(0x11, 0x52) | logical).1, vec![3]);
    assert_eq!(send(&ram, 0, to(0xf1, 0x53) | logical).2.map(|exit| exit.id()), Some(2));
}

#[test]
fn ipis_that_hardware_cannot_send_exit_with_the_reason() {
    let ram = vm(2);
    let id = |icr| send(&ram, 0, icr).2.map(|exit| exit.id());
    for mode in 1..8 {
        assert_eq!(id(to(1, 0x40 | mode << 8)), Some(0), "mode {mode}");
    }
    assert_eq!(id(to(1, 0x40 | u64::from(reg::ICR_LEVEL))), Some(0));
    assert_eq!(id(to(9, 0x40)), Some(2));
    assert_eq!(id(to(1, 0x0f)), Some(4));
    ram.store64(PHYSICAL + 8, PhysicalEntry::new(0xdead_0000).running(3).0);
    assert_eq!(id(to(1, 0x40)), Some(3));
}

#[test]
fn with_the_erratum_is_running_is_read_when_the_target_is_resolved() {
    let ram = vm(2);
    let vmcb = control(0, 1);
    let part = AvicHardware {
        erratum_1235: true,
        ..AvicHardware::default()
    };
    let mut outcomes = Vec::new();
    for hardware in [AvicHardware::default(), part] {
        ram.store64(PHYSICAL + 8, PhysicalEntry::new(page(1)).running(5).0);
        let avic = Avic::new(&ram, &vmcb, hardware).expect("it is on");
        let targets = avic.resolve(to(1, 0x40)).expect("it is valid");
        ram.store64(PHYSICAL + 8, PhysicalEntry::new(page(1)).0);
        let mut rung = 0;
        outcomes.push((avic.post(&targets, |_| rung += 1).exit.is_some(), rung));
    }
    assert_eq!(outcomes, [(true, 0), (false, 1)]);
}

#[test]
fn x2apic_mode_needs_no_logical_table() {
    let ram = vm(20);
    let mut vmcb = control(0, 19);
    vmcb.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE | vmcb::X2APIC_MODE);
    let part = AvicHardware {
        x2avic: true,
        ..AvicHardware::default()
    };
    let avic = Avic::new(&ram, &vmcb, part).expect("it is on");
    let icr = avic.write_icr(0x0001_000a_0000_0050 | u64::from(reg::ICR_LOGICAL));
    let mut rung = Vec::new();
    avic.post(&avic.resolve(icr).expect("both exist"), |host| rung.push(host));
    assert_eq!(rung, [16 + 17, 16 + 19]);
}

#[test]
fn x2apic_mode_needs_hardware_and_control() {
    let ram = vm(1);
    for (x2avic, mode) in [
        (false, 0),
        (true, 0),
        (false, vmcb::X2APIC_MODE),
        (true, vmcb::X2APIC_MODE),
    ] {
        let mut vmcb = control(0, 0);
        vmcb.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE | mode);
        let hardware = AvicHardware {
            x2avic,
            ..AvicHardware::default()
        };
        let avic = Avic::new(&ram, &vmcb, hardware).expect("it is on");
        assert_eq!(avic.is_x2apic(), x2avic && mode != 0);
    }
}

#[test]
fn wrmsr_takes_values_that_fit_to_registers_that_can_be_written() {
    let cases = [
        (reg::TPR, 0xffff_ffff, true),
        (reg::TPR, 0x1_0000_0000, false),
        (reg::SVR, 0x1ff, true),
        (reg::EOI, 0, true),
        (reg::EOI, 1, false),
        (reg::ESR, 0, true),
        (reg::ESR, 1, false),
        (reg::PPR, 0, false),
        (reg::IRR, 0, false),
        (reg::ICR_HIGH, 0, false),
    ];
    for (offset, value, accepted) in cases {
        assert_eq!(accepts_wrmsr(offset, value), accepted, "{offset:#x} {value:#x}");
    }
}

#[test]
fn icr_is_read_whole_and_other_registers_are_not() {
    let ram = vm(1);
    let vmcb = control(0, 0);
    let avic = avic(&ram, &vmcb);
    avic.write_icr(0x0102_0304_0000_0051);
    assert_eq!(avic.read_msr(reg::ICR_LOW), Some(0x0102_0304_0000_0051));
    avic.write(reg::TPR, 0x43);
    assert_eq!(avic.read_msr(reg::TPR), Some(0x43));
    assert_eq!(avic.read_msr(reg::TIMER_CURRENT), None);
    assert_eq!(
        avic.write(reg::ICR_LOW, 0x61),
        WriteOutcome::Send(0x0102_0304_0000_0061)
    );
}

#[test]
fn an_ipi_says_whom_it_names() {
    let ram = vm(4);
    let vmcb = control(1, 3);
    let avic = avic(&ram, &vmcb);
    let named = |icr| {
        let targets = avic.resolve(icr).expect("legal");
        let ids: Vec<u32> = targets.others().collect();
        let posted = avic.post(&targets, |_| {});
        assert_eq!(
            (posted.targets, posted.evaluate),
            (targets.count(), targets.include_sender())
        );
        (targets.vector(), targets.include_sender(), ids, targets.count())
    };
    assert_eq!(named(to(2, 0x51)), (0x51, false, vec![2], 1));
    assert_eq!(named(to(0xff, 0x52)), (0x52, true, vec![0, 2, 3], 4));
    let others = u64::from(reg::ICR_SHORTHAND_OTHERS) | 0x53;
    assert_eq!(named(others), (0x53, false, vec![0, 2, 3], 3));
    let itself = u64::from(reg::ICR_SHORTHAND_SELF) | 0x54;
    assert_eq!(named(itself), (0x54, true, vec![], 1));
}

#[test]
fn the_register_of_the_processor_priority_follows() {
    let ram = vm(1);
    let vmcb = control(0, 0);
    let avic = avic(&ram, &vmcb);
    avic.write(reg::TPR, 0x47);
    assert_eq!(avic.read(reg::PPR), Ok(0x47));
    send(&ram, 0, 0x61 | u64::from(reg::ICR_SHORTHAND_SELF));
    avic.take(0x61);
    assert_eq!(avic.read(reg::PPR), Ok(0x60));
    avic.write(reg::TPR, 0x6f);
    assert_eq!(avic.read(reg::PPR), Ok(0x6f), "of equal classes the task's");
    avic.write(reg::EOI, 0);
    avic.write(reg::TPR, 0x13);
    assert_eq!(avic.read(reg::PPR), Ok(0x13));
}

#[test]
fn level_interrupts_end_in_software() {
    let ram = vm(1);
    let vmcb = control(0, 0);
    let avic = avic(&ram, &vmcb);
    let (isr, bit) = bit_of(page(0), reg::ISR, 0x61);
    ram.set32(isr, bit);
    let (tmr, _) = bit_of(page(0), reg::TMR, 0x61);
    ram.set32(tmr, bit);
    let exit = Unaccelerated::new(reg::EOI, true, 0x61);
    assert_eq!(avic.write(reg::EOI, 0), WriteOutcome::Exit(exit));
    assert_eq!(ram.load32(isr), Some(bit), "only software clears the ISR bit");
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Send(u8),
    Take,
    Eoi,
    Tpr(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (16u8..=255).prop_map(Act::Send),
        2 => Just(Act::Take),
        2 => Just(Act::Eoi),
        1 => any::<u8>().prop_map(Act::Tpr),
    ]
}

proptest! {
    /// As in a model with sets of vectors, the highest pending one is taken if its class is above those of TPR and of
    /// ISR.
    #[test]
    fn priorities_are_those_of_the_model(acts in proptest::collection::vec(act(), 0..200)) {
        let ram = vm(1);
        let vmcb = control(0, 0);
        let avic = avic(&ram, &vmcb);
        let (mut pending, mut serving, mut tpr) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new(), 0u8);
        for act in acts {
            match act {
                Act::Send(vector) => {
                    send(&ram, 0, u64::from(vector) | u64::from(reg::ICR_SHORTHAND_SELF));
                    pending.insert(vector);
                }
                Act::Take => {
                    if let Some(vector) = avic.pending() {
                        avic.take(vector);
                        prop_assert!(pending.remove(&vector));
                        serving.insert(vector);
                    }
                }
                Act::Eoi => {
                    prop_assert_eq!(avic.write(reg::EOI, 0), WriteOutcome::Evaluate);
                    serving.pop_last();
                }
                Act::Tpr(value) => {
                    prop_assert_eq!(avic.write(reg::TPR, u32::from(value)), WriteOutcome::Evaluate);
                    tpr = value;
                }
            }
            let class = (tpr >> 4).max(serving.last().map_or(0, |vector: &u8| vector >> 4));
            let expected = pending.last().copied().filter(|vector| vector >> 4 > class);
            prop_assert_eq!(avic.pending(), expected);
        }
    }

    /// For any guest writes and any tables: an exit or no effect, and no write to a page but those of valid entries.
    #[test]
    fn nothing_reaches_a_page_that_the_tables_do_not_name(
        icr in any::<u64>(),
        entries in proptest::collection::vec(any::<u64>(), 8),
        logical in proptest::collection::vec(any::<u32>(), 60),
        dfr in any::<u32>(),
        x2apic in any::<bool>(),
    ) {
        let ram = memory(8);
        let named: Vec<u64> = entries.iter().enumerate().map(|(id, entry)| {
            // Half of the entries are valid, and half of these have a page that exists.
            let entry = PhysicalEntry(if entry & 1 == 0 { entry & !PAGE_ADDRESS | page(entry >> 13 & 7) } else { *entry });
            ram.store64(PHYSICAL + id as u64 * 8, entry.0);
            if entry.is_valid() { entry.backing_page() } else { 0 }
        }).collect();
        for (index, entry) in logical.iter().enumerate() {
            ram.store32(LOGICAL + index as u64 * 4, *entry);
        }
        ram.store32(page(0) + u64::from(reg::DFR), dfr);
        let before = ram.words.borrow().clone();
        let mut vmcb = control(0, 7);
        vmcb.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE | if x2apic { vmcb::X2APIC_MODE } else { 0 });
        let avic = Avic::new(&ram, &vmcb, AvicHardware { x2avic: true, ..AvicHardware::default() }).expect("on");
        if let Ok(targets) = avic.resolve(icr) {
            avic.post(&targets, |_| {});
        }
        for (address, value) in ram.words.borrow().iter() {
            let changed = before.get(address).copied().unwrap_or(0) != *value;
            let at = address & PAGE_ADDRESS;
            prop_assert!(!changed || at == page(0) || named.contains(&at), "{:#x} was written", address);
        }
    }
}
