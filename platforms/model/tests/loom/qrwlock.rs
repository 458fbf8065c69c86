//! Reader-writer locks: readers and writers exclude each other, and each head of the queue is woken.

use holdfast_locks::{AllSteps, Budget, Qrwlock, Sharing, Tas};
use holdfast_model::{Bounds, Loom, ModelWord, Setup};

use crate::loom::few;
use crate::scenario;
use crate::support::{ALL, holds};

type Lock = Qrwlock<ModelWord<Loom>, Tas>;

fn check(scenario: &str, bounds: Bounds, body: impl Fn() + Send + Sync + 'static) {
    holds::<Loom>("qrwlock", scenario, bounds, body);
}

/// A machine on which the head of the queue competes on equal terms at first.
fn shared(cpus: u32) -> Setup {
    Setup {
        sharing: Sharing {
            newcomer: Budget(0),
            queued: Budget(0),
            head: Budget(1),
        },
        ..Setup::new(cpus)
    }
}

#[test]
fn a_reader_and_a_writer_exclude_each_other() {
    for (setup, what) in [(Setup::new(2), "reader, writer"), (shared(2), "reader, equal writer")] {
        let body = scenario::readers_and_writers::<Loom, Tas, AllSteps>(&setup, 1, 1);
        check(what, ALL, body);
        let body = scenario::readers_and_writers::<Loom, Tas, AllSteps>(&setup, 1, 2);
        check("both twice", few(2), body);
    }
}

#[test]
fn writers_exclude_each_other() {
    for setup in [Setup::new(2), shared(2)] {
        let body = scenario::readers_and_writers::<Loom, Tas, AllSteps>(&setup, 2, 1);
        check("2 writers", ALL, body);
    }
}

#[test]
fn three_cpus_exclude_each_other() {
    for writers in [1, 2] {
        let body = scenario::readers_and_writers::<Loom, Tas, AllSteps>(&Setup::new(3), writers, 1);
        check("3 CPUs", few(2), body);
    }
}

#[test]
fn waiters_of_both_kinds_queue_behind_a_holder_of_both_kinds() {
    for setup in [Setup::new(3), shared(3)] {
        for holder_writes in [false, true] {
            for writers in [0, 1, 2] {
                let body = scenario::queue_behind::<Loom, Tas, AllSteps>(&setup, holder_writes, writers);
                check("queue", few(2), body);
            }
        }
    }
}

#[test]
fn a_downgraded_writer_keeps_writers_out_and_lets_readers_in() {
    for others_write in [false, true] {
        let body = scenario::downgraded_writer::<Loom, Lock>(&Setup::new(2), others_write);
        check("downgrade", few(3), body);
    }
}

#[test]
fn a_waiting_writer_stops_new_readers() {
    for setup in [Setup::new(2), shared(2)] {
        check("waiting writer", few(2), scenario::waiting_writer::<Loom, Lock>(&setup));
    }
}
