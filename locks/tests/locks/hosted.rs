//! The paravirtual locks on CPUs like host threads: an unlock that compares and stores in two steps, and a hybrid lock that
//! is shared by turns.

use std::sync::Arc;

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, HybridPvQspin, PvQspin, PvTicket, RawLock, UnfairPvQspin, Wide};

use crate::explore::{every_schedule, random_schedules};
use crate::scenes::{Checked, contention, interrupted_waiter, job};
use crate::steps::{Setup, StepCpu};

/// Each CPU takes the lock `times` times.
fn rounds<L: RawLock<StepCpu> + 'static>(cpus: u32, times: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let lock = Checked::new(0);
    let each = |cpu| {
        let lock = Arc::clone(&lock);
        (
            CpuId(cpu),
            job(move |cpu| (0..times).for_each(|_| lock.with::<L>(cpu, || ()))),
        )
    };
    (0..cpus).map(each).collect()
}

fn every<L: RawLock<StepCpu> + 'static>() {
    every_schedule(Setup::hosted(2), 5, || contention::<L>(2, 0)).expect("no schedule of two hangs");
    every_schedule(Setup::hosted(3), 2, || contention::<L>(3, 0)).expect("no schedule of three hangs");
}

#[test]
fn no_announcement_is_lost_in_any_schedule() {
    every::<PvTicket>();
    every::<PvQspin>();
    every::<HybridPvQspin>();
    every::<UnfairPvQspin>();
}

fn random<L: RawLock<StepCpu> + 'static>() {
    for (cpus, runs) in [(2, 3000), (3, 2000), (5, 700)] {
        random_schedules(Setup::hosted(cpus), runs, || rounds::<L>(cpus, 4)).expect("no schedule hangs");
    }
    random_schedules(Setup::hosted(2), 2000, interrupted_waiter::<L>).expect("no schedule with interrupts hangs");
}

#[test]
fn random_schedules_of_more_cpus_pass() {
    random::<PvTicket>();
    random::<PvQspin>();
    random::<HybridPvQspin>();
    random::<HybridPvQspin<Wide>>();
    random::<UnfairPvQspin>();
}

/// An announcement is overwritten by an unlocker that had compared before, and the waiter halts for ever.
#[test]
fn without_settling_a_schedule_hangs() {
    let deaf = |cpus| Setup {
        settles: false,
        ..Setup::hosted(cpus)
    };
    every_schedule(deaf(2), 4, || contention::<PvTicket>(2, 0)).expect_err("the flag is overwritten");
    every_schedule(deaf(2), 4, || contention::<PvQspin>(2, 0)).expect_err("the 3 is overwritten");
    random_schedules(deaf(3), 20_000, || rounds::<HybridPvQspin>(3, 4)).expect_err("the 3 is overwritten");
}
