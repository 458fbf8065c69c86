//! No interrupt of a device is lost in the IOMMU, and each step that prevents it is necessary.

use crate::interrupts::AvicScenario;
use crate::interrupts::Sender::{Device, Software};
use crate::interrupts::Waiting::{Deactivates, DeactivatesAndMoves, Halts, Spins, SpinsAndMoves};
use holdfast_host::avic::handshake::AvicFaults;

use super::{faulty, holds, loses};
use crate::support::{ALL, BOUNDED, apart};

#[test]
fn no_interrupt_of_one_device_is_lost() {
    apart(|| {
        for waiting in [Halts, Spins, SpinsAndMoves, Deactivates, DeactivatesAndMoves] {
            holds(
                &format!("[Device], {waiting:?}"),
                &AvicScenario::new(&[Device], waiting),
                &ALL,
            );
        }
    });
}

#[test]
fn no_interrupt_of_two_devices_is_lost() {
    for waiting in [Halts, SpinsAndMoves, Deactivates] {
        holds(
            &format!("[Device, Device], {waiting:?}"),
            &AvicScenario::new(&[Device, Device], waiting),
            &BOUNDED,
        );
    }
}

#[test]
fn no_interrupt_is_lost_beside_the_hypervisors() {
    apart(|| {
        for waiting in [Halts, SpinsAndMoves] {
            holds(
                &format!("[Device, Software], {waiting:?}"),
                &AvicScenario::new(&[Device, Software], waiting),
                &BOUNDED,
            );
        }
    });
}

#[test]
fn a_full_log_loses_entries_and_no_interrupt() {
    let full = faulty(&[Device], Halts, |scenario| scenario.log_is_full = true);
    holds("[Device], log full, Halts", &full, &BOUNDED);
    let full = faulty(&[Device, Device], Halts, |scenario| scenario.log_is_full = true);
    holds("[Device, Device], log full, Halts", &full, &BOUNDED);
}

#[test]
fn an_iommu_that_does_not_fence_loses_interrupts() {
    let unfenced = faulty(&[Device], Halts, |scenario| scenario.hardware_without_fence = true);
    loses("iommu without fence", &unfenced);
}

#[test]
fn entries_told_behind_the_fence_are_saved_by_the_sleepers_own() {
    let late = faulty(&[Device], Halts, |scenario| scenario.faults.remap_after_fence = true);
    holds("remap after fence", &late, &ALL);
    let late = faulty(&[Device], Halts, |scenario| {
        scenario.faults.remap_after_fence = true;
        scenario.sleep_without_fence = true;
    });
    loses("remap after fence, sleep without", &late);
}

#[test]
fn running_that_ends_after_the_last_look_loses_interrupts() {
    let late = faulty(&[Device], Halts, |scenario| scenario.remap_after_look = true);
    loses("remap after look", &late);
}

#[test]
fn an_entry_that_changes_without_invalidation_loses_interrupts() {
    let hasty = faulty(&[Device], Deactivates, |scenario| {
        scenario.remap_without_invalidation = true
    });
    loses("remap without invalidation", &hasty);
}

#[test]
fn an_overflow_that_nobody_looks_after_loses_interrupts() {
    let ignored = faulty(&[Device], Halts, |scenario| {
        scenario.log_is_full = true;
        scenario.faults.overflow_ignored = true;
    });
    loses("overflow ignored", &ignored);
}

/// Sets the field of the scenario that plants the named fault.
macro_rules! planted {
    ($($test:ident: [$($sender:ident),+] $waiting:ident $field:ident,)+) => {
        $(#[test]
        fn $test() {
            let fault = faulty(&[$($sender),+], $waiting, |scenario| {
                scenario.faults = AvicFaults { $field: true, ..AvicFaults::default() };
            });
            loses(stringify!($field), &fault);
        })+
    };
}
planted! {
    an_entry_that_stays_running_loses: [Device] Halts remap_stays_running,
    an_entry_with_the_pcpu_of_before_loses: [Device] SpinsAndMoves remap_keeps_destination,
    an_entry_into_the_guest_that_does_not_fence_loses: [Device] SpinsAndMoves entry_without_fence,
    a_log_that_is_not_read_loses: [Device] Halts log_not_drained,
    a_log_whose_bit_is_cleared_after_it_is_read_loses: [Device, Device] Halts cleared_after_drain,
}
