//! The watching locks: a holder, a head and a next waiter that stop are kicked by their neighbor in the queue.
//!
//! A CPU "stops" by a halt that only a kick ends, as a preempted vCPU goes on when the host yields to it. Without the
//! watch such a run never ends: the simple unfair lock, which has the same queue, is the planted fault.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_history::{SimpleUnfairQspin, UnfairWatchingQspin, WatchingQspin};
use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, CpuId, Event, Paravirt, Platform, RawLock};

use crate::explore::every_schedule;
use crate::scenes::{Checked, contention, job};
use crate::steps::{InTurn, Machine, Setup, StepCpu};

/// Waits until the tail of the queue is CPU `last`.
fn queued(cpu: &StepCpu, lock: &Checked, last: u32) {
    let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, move |now| now >> 18 == last + 1);
}

/// Runs three CPUs: 0 holds the lock until 1 and 2 queue in this order. Then `as_holder` runs on CPU 0 while it still
/// holds the lock, and CPU 1 stops in its critical section if `holder_stops`.
fn run<L: RawLock<StepCpu> + 'static>(
    as_holder: impl FnOnce(&StepCpu) + Send + 'static,
    holder_stops: bool,
) -> (Rc<Machine>, Result<(), String>) {
    let lock = Checked::new(0);
    let (second, third) = (Arc::clone(&lock), Arc::clone(&lock));
    let first = job(move |cpu| {
        lock.with::<L>(cpu, || {
            queued(cpu, &lock, 2);
            as_holder(cpu);
        });
    });
    let second = job(move |cpu| {
        let _ = cpu.wait_until(&second.word, Budget::UNBOUNDED, Relaxed, |now| now != 0);
        second.with::<L>(cpu, || {
            if holder_stops {
                queued(cpu, &second, 2);
                cpu.halt_masked();
            }
        });
    });
    let third = job(move |cpu| {
        queued(cpu, &third, 1);
        third.with::<L>(cpu, || ());
    });
    let setup = Setup {
        steps_max: 60_000,
        ..Setup::new(3)
    };
    let machine = Machine::new(setup, Box::new(InTurn(0)));
    let jobs: Vec<(CpuId, Job<StepCpu>)> = vec![(CpuId(0), first), (CpuId(1), second), (CpuId(2), third)];
    let result = machine.run(jobs);
    (machine, result)
}

/// Stops `target` by an interrupt, and waits until it goes on.
fn stop(target: u32) -> impl FnOnce(&StepCpu) + Send + 'static {
    move |cpu| {
        // Time for head and next to find each other.
        (0..500).for_each(|_| cpu.relax());
        let resumed = Checked::new(0);
        let handled = Arc::clone(&resumed);
        let handler = job(move |cpu| {
            cpu.halt_masked();
            cpu.store(&handled.word, 1, Relaxed);
        });
        cpu.interrupt(CpuId(target), handler);
        let _ = cpu.wait_until(&resumed.word, Budget::UNBOUNDED, Relaxed, |now| now == 1);
    }
}

/// Checks that `L` kicks a CPU that stops, wherever it is, and counts the kick where it belongs.
fn keeps_all_running<L: RawLock<StepCpu> + 'static>() {
    let count = |(machine, result): (Rc<Machine>, Result<(), String>), event| {
        result.expect("all go on");
        assert!(machine.stats.count(event) > 0, "{event:?}");
    };
    count(run::<L>(|_| (), true), Event::PvKickHolder);
    count(run::<L>(stop(1), false), Event::PvKickHead);
    count(run::<L>(stop(2), false), Event::PvKickNext);
}

#[test]
fn holder_head_and_next_are_kicked_when_they_stop() {
    keeps_all_running::<WatchingQspin>();
    keeps_all_running::<UnfairWatchingQspin>();
}

#[test]
fn no_schedule_hangs() {
    fn every<L: RawLock<StepCpu> + 'static>() {
        every_schedule(Setup::new(2), 3, || contention::<L>(2, 0)).expect("no schedule hangs");
        every_schedule(Setup::new(3), 1, || contention::<L>(3, 0)).expect("no schedule hangs");
    }
    every::<WatchingQspin>();
    every::<UnfairWatchingQspin>();
}

#[test]
fn without_the_watch_whoever_stops_stays_so() {
    run::<SimpleUnfairQspin>(|_| (), true).1.expect_err("the holder");
    run::<SimpleUnfairQspin>(stop(1), false).1.expect_err("the head");
    run::<SimpleUnfairQspin>(stop(2), false).1.expect_err("the next");
}

#[test]
fn a_holder_that_did_not_queue_is_not_known() {
    let halts = |cpu: &StepCpu| cpu.halt_masked();
    let (machine, result) = run::<WatchingQspin>(halts, false);
    result.expect_err("no waiter knows the holder's CPU");
    assert_eq!(machine.stats.count(Event::PvKickHolder), 0);
}
