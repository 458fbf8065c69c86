//! The reader-writer lock without a queue: readers and writers exclude each other.

use holdfast_locks::UnqueuedRwlock;
use holdfast_model::{Bounds, Loom, ModelWord, Setup};

use crate::loom::few;
use crate::scenario;
use crate::support::{ALL, holds};

fn check(what: &str, bounds: Bounds, cpus: u32, writers: u32, rounds: u32) {
    type Lock = UnqueuedRwlock<ModelWord<Loom>>;
    let body = scenario::readers_and_writers_of::<Loom, Lock>(&Setup::new(cpus), writers, rounds);
    holds::<Loom>("unqueued", what, bounds, body);
}

#[test]
fn a_reader_and_a_writer_exclude_each_other() {
    check("reader, writer", ALL, 2, 1, 1);
    check("both twice", few(2), 2, 1, 2);
}

#[test]
fn writers_exclude_each_other() {
    check("2 writers", ALL, 2, 2, 1);
}

#[test]
fn three_cpus_exclude_each_other() {
    for writers in [1, 2] {
        check("3 CPUs", few(2), 3, writers, 1);
    }
}
