//! The paravirtual locks on CPUs like host threads: unlock compares and stores in two steps, and a hybrid lock is
//! shared by turns.

use holdfast_locks::{HybridPvQspin, PvQspin, PvTicket, RawLock};

use crate::explore::{every_schedule, random_schedules};
use crate::scenes::{Listed, contention, for_each_kind, for_each_lock, interrupted_waiter, rounds};
use crate::steps::{Settling, Setup, StepCpu};

fn every<L: RawLock<StepCpu> + 'static>(name: &str) {
    every_schedule(Setup::hosted(2), 5, || contention::<L>(2, 0)).expect(name);
    every_schedule(Setup::hosted(3), 2, || contention::<L>(3, 0)).expect(name);
}

#[test]
fn no_announcement_is_lost_in_any_schedule() {
    for_each_lock!(for_each_kind Listed::halts, every);
}

fn random<L: RawLock<StepCpu> + 'static>(name: &str) {
    for (cpus, runs) in [(2, 3000), (3, 2000), (5, 700)] {
        random_schedules(Setup::hosted(cpus), runs, || rounds::<L>(cpus, 4)).expect(name);
    }
    random_schedules(Setup::hosted(2), 2000, interrupted_waiter::<L>).expect(name);
}

#[test]
fn random_schedules_of_more_cpus_pass() {
    for_each_lock!(for_each_kind Listed::halts, random);
}

fn many<L: RawLock<StepCpu> + 'static>(name: &str) {
    random_schedules(Setup::new(40), 10, || contention::<L>(40, 0)).expect(name);
    random_schedules(Setup::hosted(40), 10, || contention::<L>(40, 0)).expect(name);
}

/// The table of waiting CPUs has 32 in a word.
#[test]
fn each_of_forty_cpus_is_found_by_its_unlocker() {
    for_each_lock!(for_each_kind Listed::halts, many);
}

/// Returns a machine of `cpus` CPUs like host threads on which `settle` does this.
fn machine(settling: Settling, cpus: u32) -> Setup {
    Setup {
        settling,
        ..Setup::hosted(cpus)
    }
}

/// Runs all schedules of two CPUs with so many preemptions, all of three with two, and random ones.
fn no_schedule_hangs<L: RawLock<StepCpu> + 'static>(name: &str, settling: Settling, preemptions: u32) {
    let machine = |cpus| machine(settling, cpus);
    every_schedule(machine(2), preemptions, || contention::<L>(2, 0)).expect(name);
    every_schedule(machine(3), 2, || contention::<L>(3, 0)).expect(name);
    for (cpus, runs) in [(2, 3000), (3, 2000), (5, 700)] {
        random_schedules(machine(cpus), runs, || rounds::<L>(cpus, 4)).expect(name);
    }
}

/// Without `settle`, an unlocker that has already compared overwrites an announcement, and the waiter halts forever.
#[test]
fn without_settling_a_schedule_hangs() {
    let deaf = |cpus| machine(Settling::Fails, cpus);
    every_schedule(deaf(2), 4, || contention::<PvTicket>(2, 0)).expect_err("the flag is overwritten");
    every_schedule(deaf(2), 4, || contention::<PvQspin>(2, 0)).expect_err("the 3 is overwritten");
    random_schedules(deaf(3), 20_000, || rounds::<HybridPvQspin>(3, 4)).expect_err("the 3 is overwritten");
}

fn every_changing<L: RawLock<StepCpu> + 'static>(name: &str) {
    no_schedule_hangs::<L>(name, Settling::ChangesOver, 4);
}

/// Compare-stores become exchanges and compare-stores again all the time.
#[test]
fn no_announcement_is_lost_while_unlocks_change_over_to_exchanges_and_back() {
    for_each_lock!(for_each_kind Listed::halts, every_changing);
}

/// A changeover that does not wait for the compare-stores that have begun is as bad as no `settle`.
#[test]
fn a_changeover_that_does_not_wait_hangs() {
    let hasty = |cpus| machine(Settling::ChangesOverAtOnce, cpus);
    every_schedule(hasty(2), 4, || contention::<PvTicket>(2, 0)).expect_err("the flag is overwritten");
    every_schedule(hasty(2), 4, || contention::<PvQspin>(2, 0)).expect_err("the 3 is overwritten");
    random_schedules(hasty(3), 20_000, || rounds::<HybridPvQspin>(3, 4)).expect_err("the 3 is overwritten");
}

fn every_refused<L: RawLock<StepCpu> + 'static>(name: &str) {
    no_schedule_hangs::<L>(name, Settling::Refused, 5);
}

/// `settle` cannot wait, and unlockers go on comparing and storing in two steps.
#[test]
fn an_overwritten_announcement_is_made_again_if_settling_is_refused() {
    for_each_lock!(for_each_kind Listed::halts, every_refused);
}

/// Bounded halts alone are not enough: a head that takes the lock, or lists itself again, while its entry is still in
/// the table leaves an entry behind.
#[test]
fn a_refusal_in_silence_leaves_an_entry_behind() {
    let silent = |cpus| machine(Settling::RefusedInSilence, cpus);
    every_schedule(silent(2), 4, || contention::<PvQspin>(2, 0)).expect_err("an entry is left");
    random_schedules(silent(3), 20_000, || rounds::<HybridPvQspin>(3, 4)).expect_err("an entry is left");
}
