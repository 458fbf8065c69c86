//! Bounded overtaking: under a fair scheduler no waiter is overtaken forever, also with more CPUs than a word has bits.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use holdfast_history::{CnaQspin, SimpleUnfairQspin, TailPvTicket};
use holdfast_locks::{Budget, CpuId, Platform as _, PvTicket, RawLock, Ticket, UnfairQspin};

use crate::explore::{Random, RandomWalk};
use crate::scenes::{Checked, Listed, for_each_kind, for_each_lock, job, rounds};
use crate::steps::{InTurn, Machine, Setup, StepCpu};

/// Lets each CPU take a lock `times` times. Returns the largest number of acquisitions by other CPUs between a call of
/// `lock` and its return.
fn passed_over<L: RawLock<StepCpu> + 'static>(setup: Setup, times: u32) -> u32 {
    let lock = Checked::new(0);
    let (served, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let each = |number| {
        let (lock, served, most) = (Arc::clone(&lock), Arc::clone(&served), Arc::clone(&most));
        let body = move |cpu: &StepCpu| {
            for _ in 0..times {
                let begun = served.load(Relaxed);
                lock.with::<L>(cpu, || {
                    most.fetch_max(served.fetch_add(1, Relaxed) - begun, Relaxed);
                });
            }
        };
        (CpuId(number), job(body))
    };
    Machine::new(setup, Box::new(InTurn(0)))
        .run((0..setup.cpus).map(each).collect())
        .expect("no deadlock");
    most.load(Relaxed)
}

/// Checks the bound of a lock that lets a waiter be passed over `turns` times by each other CPU, and by two CPUs more
/// that come between the call and the arrival in the queue.
fn bounded<L: RawLock<StepCpu> + 'static>(name: &str, turns: u32, numa_nodes: u32) {
    for cpus in [2, 3, 5, 33, 40] {
        for threshold in [1, Budget::UNBOUNDED.0] {
            for setup in [Setup::new(cpus), Setup::hosted(cpus)] {
                let setup = Setup {
                    threshold,
                    numa_nodes,
                    ..setup
                };
                let found = passed_over::<L>(setup, 4 * turns);
                let hosted = setup.hosted;
                assert!(
                    found <= turns * cpus + 2,
                    "{name}, {cpus} CPUs, {threshold}, hosted {hosted}: {found}"
                );
            }
        }
    }
}

#[test]
fn every_fair_lock_bounds_overtaking() {
    fn queues(kind: Listed) -> bool {
        let bounded = [
            "cna-qspin",
            "preemptable-ticket",
            "exchange-qspin",
            "numerous-qspin",
            "ahead-pv-qspin",
        ];
        kind.is.is_fifo || bounded.contains(&kind.name)
    }
    fn once<L: RawLock<StepCpu> + 'static>(name: &str) {
        bounded::<L>(name, 1, 1);
    }
    fn shared(kind: Listed) -> bool {
        ["pv-qspin", "hybrid-pv-qspin", "wide-pv-qspin"].contains(&kind.name)
    }
    fn few_times<L: RawLock<StepCpu> + 'static>(name: &str) {
        bounded::<L>(name, 3, 1);
    }
    for_each_lock!(for_each_kind queues, once);
    for_each_lock!(for_each_kind shared, few_times);
    bounded::<CnaQspin<10_000, 0>>("cna-qspin, two nodes", 1, 2);
}

/// Returns whether some schedule lets a CPU that waits overtake one that has begun to wait earlier.
fn overtakes<L: RawLock<StepCpu> + 'static>() -> bool {
    (0..400).any(|seed| {
        let setup = Setup {
            numa_nodes: 2,
            preempted: seed % 2 == 0,
            ..Setup::hosted(5)
        };
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 1 + seed % 4,
        };
        let machine = Machine::new(setup, Box::new(chooser));
        machine.run(rounds::<L>(5, 4)).expect("no deadlock");
        machine.overtaken() > 0
    })
}

#[test]
fn locks_that_serve_waiters_in_order_of_arrival_say_so() {
    fn shows(kind: Listed) -> bool {
        // These do not promise the order of arrival. But they leave it only for CPUs that have not waited, behind
        // preempted CPUs, when a waiter outside the queue gives up, or among more CPUs.
        let rarely = [
            "ahead-pv-qspin",
            "cna-qspin",
            "numerous-qspin",
            "preemptable-ticket",
            "pv-qspin",
        ];
        let for_newcomers = ["simple-unfair-qspin", "unfair-pv-qspin", "unfair-watching-qspin"];
        !rarely.contains(&kind.name) && !for_newcomers.contains(&kind.name)
    }
    fn truly<L: RawLock<StepCpu> + 'static>(name: &str) {
        assert_eq!(L::FIFO, !overtakes::<L>(), "{name}");
    }
    for_each_lock!(for_each_kind shows, truly);
}

/// CPU 0 holds the lock as the owner of the first of `tickets` tickets, and releases it for each of them. The other
/// CPUs come when the queue is as long as that.
fn crowded<L: RawLock<StepCpu> + 'static>(tickets: u32, step: u32) {
    let lock = Checked::new((tickets * step) << 16);
    let held = Arc::clone(&lock);
    let mut jobs = vec![(
        CpuId(0),
        job(move |cpu| {
            (0..200).for_each(|_| holdfast_locks::Platform::relax(cpu));
            (0..tickets).for_each(|_| L::unlock(cpu, &held.word));
        }),
    )];
    jobs.extend((1..5).map(|number| {
        let lock = Arc::clone(&lock);
        (CpuId(number), job(move |cpu| lock.with::<L>(cpu, || ())))
    }));
    let setup = Setup {
        steps_max: 20_000_000,
        ..Setup::new(5)
    };
    Machine::new(setup, Box::new(InTurn(0))).run(jobs).expect("no deadlock");
}

#[test]
fn a_ticket_too_many_is_given_back_and_drawn_again() {
    crowded::<Ticket>(1 << 15, 1);
    crowded::<PvTicket>(24_576, 2);
    crowded::<TailPvTicket>(24_576, 2);
}

/// Returns the order in which three CPUs take a lock under the schedule of `seed`: CPUs 1 and 2 queue in this order
/// while CPU 0 holds it, and CPU 0 then comes back as a newcomer.
fn served<L: RawLock<StepCpu> + 'static>(seed: u64) -> Vec<u32> {
    let (lock, order) = (Checked::new(0), Arc::new(Mutex::new(Vec::new())));
    let until_last = |cpu: &StepCpu, lock: &Checked, last: u32| {
        let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, move |now| now >> 18 == last + 1);
    };
    let each = |number: u32| {
        let (lock, order) = (Arc::clone(&lock), Arc::clone(&order));
        let body = move |cpu: &StepCpu| {
            match number {
                0 => lock.with::<L>(cpu, || until_last(cpu, &lock, 2)),
                1 => drop(cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, |now| now != 0)),
                _ => until_last(cpu, &lock, 1),
            }
            lock.with::<L>(cpu, || order.lock().expect("one thread").push(number));
        };
        (CpuId(number), job(body))
    };
    let chooser = RandomWalk {
        random: Random(seed),
        stride: 1 + seed % 4,
    };
    let machine = Machine::new(Setup::new(3), Box::new(chooser));
    machine.run((0..3).map(each).collect()).expect("no deadlock");
    std::mem::take(&mut order.lock().expect("one thread"))
}

#[test]
fn only_newcomers_steal_the_simple_unfair_lock() {
    let all = || (0..400).map(served::<SimpleUnfairQspin>);
    assert!(all().any(|order| order[0] == 0), "a newcomer takes it past the queue");
    let place = |order: &[u32], cpu| order.iter().position(|one| *one == cpu);
    assert!(
        all().all(|order| place(&order, 1) < place(&order, 2)),
        "a waiter overtook"
    );
    // In a later patch of the series waiters steal, too.
    let later = (0..400).map(served::<UnfairQspin>);
    assert!(later.into_iter().any(|order| place(&order, 1) > place(&order, 2)));
}
