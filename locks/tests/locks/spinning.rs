//! How long waiters spin: before they halt, and between two attempts to take a lock past its queue.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Budget, CpuId, Platform, PvQspin, RawLock, UnfairPvQspin, UnfairQspin};

use crate::explore::{Random, RandomWalk};
use crate::scenes::{Checked, Listed, for_each_kind, for_each_lock, job};
use crate::steps::{Chooser, Machine, Setup, StepCpu};

/// A random schedule in which no halt ends without a reason.
struct Calm(RandomWalk);

impl Chooser for Calm {
    fn choose(&mut self, options: &[u32]) -> u32 {
        self.0.choose(options)
    }
}

/// Lets CPU 0 hold a lock for `steps` steps while the others come one after another, `apart` steps each.
fn wait_for_holder<L: RawLock<StepCpu> + 'static>(setup: Setup, steps: u32, apart: u32) -> std::rc::Rc<Machine> {
    let lock = Checked::new(0);
    let jobs = (0..setup.cpus).map(|number| {
        let lock = Arc::clone(&lock);
        let body = move |cpu: &StepCpu| {
            (0..number * apart).for_each(|_| cpu.relax());
            lock.with::<L>(cpu, || {
                if number == 0 {
                    (0..steps).for_each(|_| cpu.relax());
                }
            });
        };
        (CpuId(number), job(body))
    });
    // All CPUs advance at about the same speed.
    let walk = RandomWalk {
        random: Random(7),
        stride: 1,
    };
    let machine = Machine::new(setup, Box::new(Calm(walk)));
    machine.run(jobs.collect()).expect("no deadlock");
    machine
}

#[test]
fn a_waiter_halts_after_as_many_iterations_as_the_threshold() {
    fn check<L: RawLock<StepCpu> + 'static>(name: &str) {
        for threshold in [1, 100, 256, 257, 5_000, 100_000] {
            let setup = Setup {
                threshold,
                ..Setup::new(2)
            };
            let machine = wait_for_holder::<L>(setup, 4_000, 20);
            let halts = machine.halted_after(1);
            let first: u32 = halts.first().expect("a halt of the waiter").iter().sum();
            // The first waiter of this lock stays outside the queue before.
            let outside = if name == "ahead-pv-qspin" { 1 << 10 } else { 0 };
            assert_eq!(first, outside + threshold, "{name}: {halts:?}");
        }
    }
    fn halts_next_to_the_holder(kind: Listed) -> bool {
        kind.halts() && kind.name != "opportunistic-ticket"
    }
    for_each_lock!(for_each_kind halts_next_to_the_holder, check);
}

#[test]
fn no_waiter_halts_below_an_unbounded_threshold() {
    fn check<L: RawLock<StepCpu> + 'static>(name: &str) {
        let setup = Setup {
            threshold: u32::MAX,
            ..Setup::new(4)
        };
        let machine = wait_for_holder::<L>(setup, 2_000, 20);
        assert!((0..4).all(|cpu| machine.halts(cpu) == 0), "{name}");
    }
    for_each_lock!(for_each_kind Listed::halts, check);
}

#[test]
fn a_waiter_tries_the_less_often_the_farther_it_is_from_the_head() {
    let machine = wait_for_holder::<UnfairQspin>(Setup::new(5), 3_000, 60);
    // CPU 1 is the head of the queue, whose wait has no bound.
    let between: Vec<Vec<u32>> = (2..5).map(|cpu| machine.waits(cpu)).collect();
    for (place, waits) in between.iter().enumerate() {
        let most = *waits.iter().max().expect("a wait in vain");
        let least = *waits.iter().min().expect("a wait in vain");
        // 8 iterations behind the head, and twice as many behind each waiter, as soon as that one has found its place.
        assert_eq!(
            (most, least >= 8),
            (8 << place, true),
            "{place} behind the second: {waits:?}"
        );
    }
}

#[test]
fn the_time_between_two_attempts_has_a_limit() {
    let machine = wait_for_holder::<UnfairQspin>(Setup::new(14), 12_000, 60);
    let most = (1..14).flat_map(|cpu| machine.waits(cpu)).max();
    assert_eq!(most, Some(1_024));
}

/// Prefers CPU 2 to CPU 0, and that to CPU 1.
struct LastFirst;

impl Chooser for LastFirst {
    fn choose(&mut self, options: &[u32]) -> u32 {
        let rank = |cpu: &&u32| [1, 0, 2][**cpu as usize];
        *options.iter().max_by_key(rank).expect("a CPU that can take a step")
    }
}

/// Lets CPU 1 head the queue and CPU 2 come behind it at once. Returns for how many iterations CPU 2 spins before it
/// halts.
fn behind_the_head<L: RawLock<StepCpu> + 'static>(setup: Setup) -> u32 {
    let (lock, turn) = (Checked::new(0), Checked::new(0));
    let jobs = (0..3).map(|number| {
        let (lock, turn) = (Arc::clone(&lock), Arc::clone(&turn));
        let body = move |cpu: &StepCpu| {
            let wait = |least| {
                let _ = cpu.wait_until(&turn.word, Budget::UNBOUNDED, Relaxed, |now| now >= least);
            };
            wait(number);
            lock.with::<L>(cpu, || {
                if number == 0 {
                    cpu.store(&turn.word, 1, Relaxed);
                    let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, |now| now >> 16 != 0);
                    cpu.store(&turn.word, 2, Relaxed);
                    (0..4_000).for_each(|_| cpu.relax());
                }
            });
        };
        (CpuId(number), job(body))
    });
    let machine = Machine::new(setup, Box::new(LastFirst));
    machine.run(jobs.collect()).expect("no deadlock");
    machine.halted_after(2)[0].iter().sum()
}

#[test]
fn a_waiter_spins_as_long_as_the_one_before_it_may_soon_have_the_lock() {
    for threshold in [1, 100, 256] {
        for (preempted, halts_behind) in [(false, false), (true, false), (false, true), (true, true)] {
            let setup = Setup {
                threshold,
                preempted,
                halts_behind,
                ..Setup::new(3)
            };
            let expected = if preempted && halts_behind { 0 } else { threshold };
            let spun = [
                behind_the_head::<PvQspin>(setup),
                behind_the_head::<UnfairPvQspin>(setup),
            ];
            assert_eq!(
                spun, [expected; 2],
                "{threshold}, preempted {preempted}, {halts_behind}"
            );
        }
    }
}
