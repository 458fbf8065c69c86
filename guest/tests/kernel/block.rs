//! The block device: tasks sleep while the disk reads, and every file is read once.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{FileId, Limits};
use holdfast_sim::DiskConfig;

use crate::machine::{Setup, lead, run};

const MS: u64 = 1_000_000;

/// A disk that needs 5 ms for each request and nothing for its length.
fn setup(depth: u32, tasks: u32) -> Setup {
    Setup {
        disk: Some(DiskConfig {
            latency_ns: 5 * MS,
            depth,
            bytes_per_second: u64::MAX,
        }),
        limits: Limits {
            tasks: tasks + 1,
            files: tasks,
            ..Limits::default()
        },
        ..Setup::default()
    }
}

/// Lets each of `tasks` tasks read the files that `files` returns for it. Returns the milliseconds until all have, and
/// how many reads have returned.
fn reading(setup: &Setup, tasks: u32, files: impl Fn(u32) -> Vec<u32> + 'static) -> (u64, u32) {
    let reads = Rc::new(Cell::new(0));
    let counted = reads.clone();
    let outcome = run(setup, move |os, start| {
        if start.role == 0 {
            (0..tasks).for_each(|file| os.drop_cached(FileId(file)));
            return lead(os, tasks);
        }
        for file in files(start.argument) {
            os.read_file(FileId(file), 4);
            reads.set(reads.get() + 1);
        }
    });
    (outcome.vms[0].elapsed_ns.expect("a measured guest") / MS, counted.get())
}

#[test]
fn readers_sleep_for_as_long_as_the_disk_takes() {
    // Each reads a file of its own: one after another, two at a time, all at once.
    for (depth, least, most) in [(1, 40, 43), (2, 20, 23), (8, 5, 8)] {
        let (ms, reads) = reading(&setup(depth, 8), 8, |task| vec![task]);
        assert_eq!(reads, 8);
        assert!((least..=most).contains(&ms), "{depth}: {ms} ms");
    }
}

#[test]
fn other_tasks_compute_while_one_waits_for_the_disk() {
    let mut setup = setup(1, 2);
    (setup.pcpus, setup.vcpus) = (1, 1);
    let outcome = run(&setup, |os, start| match (start.role, start.argument) {
        (0, _) => {
            os.drop_cached(FileId(0));
            lead(os, 2);
        }
        (_, 0) => os.read_file(FileId(0), 4),
        _ => os.user(50 * MS),
    });
    let ms = outcome.vms[0].elapsed_ns.expect("a measured guest") / MS;
    assert!(
        (50..53).contains(&ms),
        "{ms} ms for 50 ms of computing and a read of 5 ms"
    );
}

#[test]
fn a_file_is_read_once_by_whichever_task_comes_first() {
    // Twelve tasks read the same three files twice, in different orders.
    let (ms, reads) = reading(&setup(1, 12), 12, |task| {
        (0..6).map(|at| (at * (1 + task % 2) + task) % 3).collect()
    });
    assert_eq!(reads, 12 * 6);
    assert!((15..18).contains(&ms), "{ms} ms for three requests");
}

#[test]
fn more_readers_than_requests_are_all_served() {
    // The driver has 128 requests.
    for (vcpus, depth) in [(1, 1), (4, 32)] {
        let mut setup = setup(depth, 200);
        setup.vcpus = vcpus;
        let (ms, reads) = reading(&setup, 200, |task| vec![task]);
        assert_eq!(reads, 200);
        let least = 5 * 200 / u64::from(depth);
        assert!(ms >= least, "{ms} ms, {vcpus} vCPUs, depth {depth}");
    }
}

#[test]
fn without_a_disk_all_files_are_cached() {
    let mut setup = setup(1, 2);
    setup.disk = None;
    let (ms, reads) = reading(&setup, 2, |_| vec![0, 1]);
    assert_eq!((ms, reads), (0, 4));
}
