//! No interrupt is lost under AVIC, and each step that prevents it is necessary.

use holdfast_host::AvicDriver;
use holdfast_model::Bounds;

use crate::interrupts::{AvicScenario, Sender, Waiting};
use crate::support::{ALL, BOUNDED, apart, loses_interrupts, loses_nothing};

mod device;

use Sender::{Hardware, Software};
use Waiting::{Deactivates, Halts, Spins, SpinsAndMoves};

#[track_caller]
fn holds(what: &str, scenario: &AvicScenario, bounds: &Bounds) {
    loses_nothing("avic", what, scenario.explore(bounds));
}

#[track_caller]
fn loses(what: &str, scenario: &AvicScenario) {
    loses_interrupts("avic", what, scenario.explore(&BOUNDED));
}

#[test]
fn no_interrupt_is_lost_by_one_sender() {
    for sender in [Hardware, Software] {
        for waiting in [Halts, Spins, SpinsAndMoves, Deactivates] {
            holds(
                &format!("{sender:?}, {waiting:?}"),
                &AvicScenario::new(&[sender], waiting),
                &ALL,
            );
        }
    }
}

#[test]
fn no_interrupt_is_lost_by_two_senders_and_migration() {
    apart(|| {
        for senders in [[Hardware, Hardware], [Hardware, Software], [Software, Software]] {
            for waiting in [Halts, SpinsAndMoves] {
                holds(
                    &format!("{senders:?}, {waiting:?}"),
                    &AvicScenario::new(&senders, waiting),
                    &BOUNDED,
                );
            }
        }
    });
}

/// Returns a scenario with one fault of the hypervisor or the hardware.
fn faulty(senders: &[Sender], waiting: Waiting, plant: impl FnOnce(&mut AvicScenario)) -> AvicScenario {
    let mut scenario = AvicScenario::new(senders, waiting);
    plant(&mut scenario);
    scenario
}

#[test]
fn no_interrupt_is_lost_by_the_driver_of_4_7() {
    apart(|| {
        let by_running = |scenario: &mut AvicScenario| scenario.driver = AvicDriver::Linux4_7;
        for sender in [Hardware, Software] {
            for waiting in [Halts, Spins, SpinsAndMoves, Deactivates] {
                let scenario = faulty(&[sender], waiting, by_running);
                holds(&format!("4.7, {sender:?}, {waiting:?}"), &scenario, &ALL);
            }
        }
        let both = faulty(&[Hardware, Software], Halts, by_running);
        holds("4.7, both senders", &both, &BOUNDED);
    });
}

#[test]
fn the_driver_of_4_7_rests_on_an_exact_running_bit_and_the_fence_before_it() {
    // A sender by software rings instead of waking, too.
    let set = faulty(&[Software], Halts, |scenario| {
        scenario.driver = AvicDriver::Linux4_7;
        scenario.faults.running_while_blocked = true;
    });
    loses("4.7, running while blocked", &set);
    let unfenced = faulty(&[Software], Halts, |scenario| {
        scenario.driver = AvicDriver::Linux4_7;
        scenario.faults.sender_without_fence = true;
    });
    loses("4.7, sender without fence", &unfenced);
}

#[test]
fn a_sender_that_does_not_fence_loses_interrupts() {
    let unfenced = faulty(&[Hardware], Halts, |scenario| scenario.hardware_without_fence = true);
    loses("hardware without fence", &unfenced);
    let unfenced = faulty(&[Software], Spins, |scenario| {
        scenario.faults.sender_without_fence = true
    });
    loses("sender without fence", &unfenced);
}

#[test]
fn a_blocker_that_does_not_fence_still_fences_when_it_goes_to_sleep() {
    // A fence follows the change of the thread's state. The hook's own fence is for kernel code that reads in between.
    let unfenced = faulty(&[Hardware], Halts, |scenario| {
        scenario.faults.blocker_without_fence = true
    });
    holds("hook without fence", &unfenced, &ALL);
    let unfenced = faulty(&[Hardware], Halts, |scenario| {
        scenario.faults.blocker_without_fence = true;
        scenario.sleep_without_fence = true;
    });
    loses("blocker without fence", &unfenced);
}

#[test]
fn a_running_bit_of_a_blocked_vcpu_loses_interrupts() {
    let set = faulty(&[Hardware], Halts, |scenario| {
        scenario.faults.running_while_blocked = true
    });
    loses("running while blocked", &set);
    let set = faulty(&[Hardware, Hardware], Halts, |scenario| {
        scenario.faults.load_ignores_blocking = true;
    });
    loses("load ignores blocking", &set);
}

#[test]
fn a_stale_host_id_loses_interrupts() {
    let stale = faulty(&[Hardware], SpinsAndMoves, |scenario| {
        scenario.faults.stale_host_id = true
    });
    loses("stale host id", &stale);
}

#[test]
fn reading_activity_before_mode_is_harmless_while_deactivation_looks_behind_a_fence() {
    // KVM reads the mode first, for a documented reason. The search shows that the fence in deactivation is sufficient:
    // a sender that has read the old "active" has set IRR before the deactivating vCPU reads it.
    for sender in [Hardware, Software] {
        let order = faulty(&[sender], Deactivates, |scenario| {
            scenario.faults.active_before_mode = true
        });
        holds(&format!("active before mode, {sender:?}"), &order, &ALL);
    }
}

#[test]
fn an_entry_that_does_not_look_again_loses_kicks() {
    let blind = faulty(&[Software], Deactivates, |scenario| {
        scenario.faults.entry_without_look = true
    });
    loses("entry without look", &blind);
}

#[test]
fn a_kick_lost_across_migration_is_a_lost_interrupt() {
    let blind = faulty(&[Software], Waiting::DeactivatesAndMoves, |scenario| {
        scenario.faults.entry_without_look = true;
    });
    loses("kick lost across migration", &blind);
}

#[test]
fn deactivation_without_a_fence_loses_interrupts() {
    // The fence at entry comes after the read of IRR, so it does not help.
    for sender in [Hardware, Software] {
        let unfenced = faulty(&[sender], Deactivates, |scenario| {
            scenario.faults.deactivate_without_fence = true;
        });
        loses(&format!("deactivation without fence, {sender:?}"), &unfenced);
    }
}

#[test]
fn erratum_1235_loses_interrupts_and_the_workaround_none() {
    apart(|| {
        let bare = faulty(&[Hardware], Halts, |scenario| scenario.erratum_1235 = true);
        loses("erratum 1235", &bare);
        let around = faulty(&[Hardware, Hardware], Halts, |scenario| {
            scenario.erratum_1235 = true;
            scenario.ipiv = false;
        });
        holds("erratum 1235, enable_ipiv=0", &around, &BOUNDED);
        let around = faulty(&[Hardware], Spins, |scenario| {
            scenario.erratum_1235 = true;
            scenario.ipiv = false;
        });
        holds("erratum 1235, enable_ipiv=0, spinning", &around, &ALL);
    });
}
