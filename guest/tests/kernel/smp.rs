//! Tests of TLB shootdown.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Config, Fork, Touch};
use holdfast_locks::LockKind;

use crate::machine::{Setup, counter, lead_forked, run};

/// Runs threads of one address space, each of which unmaps memory repeatedly.
fn threads(setup: &Setup, rounds: u32) -> holdfast_sim::Outcome {
    run(setup, move |os, start| {
        if start.role == 0 {
            return lead_forked(os, 3, Fork::Share);
        }
        for _ in 0..rounds {
            os.user_touching(40_000, Touch::anonymous(8));
            os.discard(8);
        }
    })
}

#[test]
fn unmapping_waits_for_every_cpu_of_the_address_space() {
    let outcome = threads(&Setup::default(), 50);
    let shootdowns = counter(&outcome, "guest.shootdowns");
    assert!(
        shootdowns >= 100,
        "{shootdowns} shootdowns of 150 unmaps by three threads"
    );
}

#[test]
fn shootdowns_end_although_cpus_are_preempted() {
    for lock in [LockKind::Ticket, LockKind::PvTicket, LockKind::Qspin] {
        let alone = Setup {
            kernel: Config {
                lock,
                ..Config::default()
            },
            ..Setup::default()
        };
        let setup = Setup {
            hogs: 8,
            ..alone.clone()
        };
        let alone = threads(&alone, 50);
        let next_to_hogs = threads(&setup, 50);
        let waited = |outcome: &holdfast_sim::Outcome| {
            let lost = &outcome.vms[0].lost_time_ps;
            lost.iter()
                .filter(|(name, _)| name.contains("ipi_preempted"))
                .map(|(_, ps)| ps)
                .sum::<u64>()
        };
        // A CPU that has just gone idle has to wake up for the call, but nothing preempts it.
        let (alone, next_to_hogs) = (waited(&alone), waited(&next_to_hogs));
        assert!(
            next_to_hogs > 100_000 && alone < next_to_hogs / 1000,
            "ps behind preempted CPUs: {alone} alone, {next_to_hogs} next to hogs"
        );
    }
}

#[test]
fn every_call_is_answered_with_a_lock_for_the_queue_or_without() {
    // The simulator fails if a flush ends while a TLB still has what was unmapped.
    for lock_free_calls in [false, true] {
        for hogs in [0, 8] {
            let outcome = threads(
                &Setup {
                    kernel: Config {
                        lock_free_calls,
                        ..Config::default()
                    },
                    hogs,
                    ..Setup::default()
                },
                50,
            );
            let [shootdowns, ipis, locked] = ["guest.shootdowns", "guest.call_ipis", "lock.call_single_queue.acquired"]
                .map(|name| counter(&outcome, name));
            assert!(shootdowns >= 100, "{shootdowns} shootdowns");
            // Each call finds at most the three other CPUs without a call.
            assert!(
                ipis >= shootdowns / 2 && ipis <= 3 * shootdowns,
                "{ipis} IPIs for {shootdowns} shootdowns"
            );
            assert_eq!(locked == 0, lock_free_calls, "{locked} acquisitions");
        }
    }
}

#[test]
fn a_process_of_its_own_needs_no_shootdown() {
    let checked = Rc::new(Cell::new(false));
    let done = checked.clone();
    let outcome = run(
        &Setup {
            vcpus: 1,
            pcpus: 1,
            ..Setup::default()
        },
        move |os, _| {
            os.begin();
            os.user_touching(100_000, Touch::anonymous(100));
            os.unmap(100);
            done.set(true);
            os.done(None);
        },
    );
    assert!(checked.get());
    assert_eq!(counter(&outcome, "guest.shootdowns"), 0);
}
