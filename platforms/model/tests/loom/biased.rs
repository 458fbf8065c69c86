//! The reader-writer lock with a reader bias: announced readers and writers exclude each other, and a writer that waits
//! for readers is woken.

use holdfast_locks::{BiasedRwlock, Tas};
use holdfast_model::{Bounds, Loom, ModelWord, Setup};

use crate::loom::few;
use crate::scenario;
use crate::support::{ALL, holds};

type Lock = BiasedRwlock<ModelWord<Loom>, Tas>;

fn check(what: &str, bounds: Bounds, (cpus, writers, rounds): (u32, u32, u32)) {
    for reader_lines in [1, 2] {
        let setup = Setup {
            reader_lines,
            ..Setup::new(cpus)
        };
        let body = scenario::readers_and_writers_after_a_read::<Loom, Lock>(&setup, writers, rounds);
        holds::<Loom>("biased", &format!("{what}, {reader_lines} lines"), bounds, body);
    }
}

#[test]
fn an_announced_reader_and_a_writer_exclude_each_other() {
    check("reader, writer", ALL, (2, 1, 1));
}

#[test]
fn a_lock_is_biased_and_revoked_in_turn() {
    check("both twice", few(2), (2, 1, 2));
}

#[test]
fn writers_exclude_each_other() {
    check("2 writers", few(3), (2, 2, 1));
}

/// With one line both readers announce themselves at one place.
#[test]
fn readers_that_share_a_place_keep_writers_out() {
    check("2 readers", few(2), (3, 1, 1));
}

#[test]
fn a_try_excludes_and_leaves_nothing_behind() {
    for writers in [1, 2] {
        for reader_lines in [1, 2] {
            let setup = Setup {
                reader_lines,
                ..Setup::new(2)
            };
            let body = scenario::tries::<Loom, Lock>(&setup, writers);
            holds::<Loom>("biased", &format!("{writers} tries, {reader_lines} lines"), ALL, body);
        }
    }
}

#[test]
fn a_waiting_writer_stops_new_readers() {
    let setup = Setup {
        reader_lines: 2,
        ..Setup::new(2)
    };
    let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Loom>("biased", what, few(2), body);
    holds(
        "waiting writer",
        Box::new(scenario::waiting_writer::<Loom, Lock>(&setup)),
    );
    holds("coming reader", Box::new(scenario::coming_reader::<Loom, Lock>(&setup)));
}

#[test]
fn readers_see_what_writers_wrote_before_others_read() {
    for cpus in [2, 3] {
        let setup = Setup {
            reader_lines: cpus,
            ..Setup::new(cpus)
        };
        let body = scenario::writer_that_reads::<Loom, Lock>(&setup);
        holds::<Loom>("biased", &format!("{cpus} CPUs, write, read, try"), few(2), body);
    }
}
