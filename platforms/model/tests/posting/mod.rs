//! No posted interrupt is lost, and each step that prevents it is necessary.

use holdfast_host::apicv::posting::PostingFaults;
use holdfast_model::Bounds;

use crate::interrupts::{PostingScenario, Sender, Waiting};
use crate::support::{ALL, BOUNDED, loses_interrupts, loses_nothing};

use Sender::{Hardware, Software};
use Waiting::{Halts, Spins, SpinsAndMoves};

#[track_caller]
fn holds(scenario: &PostingScenario, bounds: &Bounds) {
    let what = format!("{:?}, {:?}", scenario.senders, scenario.waiting);
    loses_nothing("posting", &what, scenario.explore(bounds));
}

/// Asserts that `fault` loses an interrupt of one of the `senders`.
#[track_caller]
fn loses(senders: &[Sender], waiting: Waiting, what: &str, fault: impl FnOnce(&mut PostingScenario)) {
    let mut scenario = PostingScenario::new(senders, waiting);
    fault(&mut scenario);
    loses_interrupts("posting", what, scenario.explore(&BOUNDED));
}

#[test]
fn no_interrupt_is_lost_by_one_sender() {
    for sender in [Hardware, Software] {
        for waiting in [Halts, Spins, SpinsAndMoves] {
            holds(&PostingScenario::new(&[sender], waiting), &ALL);
        }
    }
}

#[test]
fn no_interrupt_is_lost_by_two_senders_and_migration() {
    for senders in [[Hardware, Hardware], [Hardware, Software], [Software, Software]] {
        for waiting in [Halts, SpinsAndMoves] {
            holds(&PostingScenario::new(&senders, waiting), &BOUNDED);
        }
    }
}

/// Sets the field of the scenario that plants the named fault.
macro_rules! planted {
    ($($test:ident: [$($sender:ident),+] $waiting:ident $field:ident,)+) => {
        $(#[test]
        fn $test() {
            loses(&[$($sender),+], $waiting, stringify!($field), |scenario| {
                scenario.faults = PostingFaults { $field: true, ..PostingFaults::default() };
            });
        })+
    };
}
planted! {
    a_load_that_does_not_fence_loses: [Hardware] SpinsAndMoves load_without_fence,
    a_load_that_does_not_look_loses: [Hardware] SpinsAndMoves load_without_look,
    a_destination_left_behind_loses: [Hardware] SpinsAndMoves stale_destination,
    a_sleeper_with_the_runners_vector_loses: [Hardware] Halts block_keeps_vector,
    a_sleeper_that_does_not_look_loses: [Hardware] Halts block_without_look,
    a_sleeper_that_suppresses_loses: [Hardware] Halts block_suppresses,
    emptying_before_clearing_loses: [Software, Hardware] Spins empty_before_clear,
}

#[test]
fn hardware_that_does_not_fence_loses() {
    loses(&[Hardware], SpinsAndMoves, "hardware_without_fence", |scenario| {
        scenario.hardware_without_fence = true;
    });
}
