//! File systems: their journals and their sleeping locks.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Config, FileId, Format, Limits};
use holdfast_locks::LockKind;

use crate::machine::{Setup, counter, lead, run};

const TASKS: u32 = 12;
const ROUNDS: u32 = 6;
const PAGES: u32 = 3;

fn setup(format: Format) -> Setup {
    let limits = Limits {
        tasks: TASKS + 1,
        files: 2 + 2 * TASKS,
        volumes: 2,
        format,
        ..Limits::default()
    };
    Setup {
        limits,
        ..Setup::default()
    }
}

/// Runs tasks that create, write, sync, link and remove files on two disks. Returns how many rounds they completed.
fn files(setup: &Setup) -> (holdfast_sim::Outcome, u32) {
    let rounds = Rc::new(Cell::new(0));
    let counted = rounds.clone();
    let outcome = run(setup, move |os, start| {
        if start.role == 0 {
            return lead(os, TASKS);
        }
        let (directory, file) = (FileId(start.argument % 2), FileId(2 + start.argument));
        for _ in 0..ROUNDS {
            os.create(directory, file, 2);
            os.write(file, PAGES);
            os.overwrite(file, PAGES);
            os.sync(file, PAGES);
            os.link(directory, file, 2);
            os.close(file);
            os.unlink(directory, file, 2);
            os.user(20_000);
            rounds.set(rounds.get() + 1);
        }
    });
    (outcome, counted.get())
}

#[test]
fn no_task_is_left_waiting_for_a_journal() {
    for format in [Format::Plain, Format::Ext4, Format::Xfs] {
        for lock in [LockKind::Ticket, LockKind::PvQspin] {
            // Preempted holders lengthen every critical section.
            for hogs in [0, 6] {
                let (_, rounds) = files(&Setup {
                    kernel: Config {
                        lock,
                        ..Config::default()
                    },
                    hogs,
                    ..setup(format)
                });
                assert_eq!(rounds, TASKS * ROUNDS, "{format:?}, {lock}, {hogs} hogs");
            }
        }
    }
}

#[test]
fn file_systems_meet_at_locks_of_their_own() {
    let taken = |format, class: &str| counter(&files(&setup(format)).0, &format!("lock.{class}.acquired"));
    for (class, format) in [
        ("journal", Format::Plain),
        ("j_list_lock", Format::Ext4),
        ("bgl_lock", Format::Ext4),
        ("xc_cil_lock", Format::Xfs),
        ("semaphore", Format::Xfs),
    ] {
        for other in [Format::Plain, Format::Ext4, Format::Xfs] {
            assert_eq!(taken(other, class) > 0, other == format, "{class} on {other:?}");
        }
    }
}

#[test]
fn xfs_sleeps_where_ext4_spins() {
    // One disk: all tasks contend for one journal, or for one allocation group's headers.
    let crowded = |format| {
        let mut setup = setup(format);
        setup.limits.volumes = 1;
        files(&setup).0
    };
    let (ext4, xfs) = (crowded(Format::Ext4), crowded(Format::Xfs));
    let filed = counter(&ext4, "lock.j_list_lock.acquired");
    let gathered = counter(&xfs, "lock.xc_cil_lock.acquired");
    assert!(
        filed > 3 * gathered,
        "{filed} sections of ext4's list, {gathered} of XFS's"
    );
    assert!(counter(&xfs, "lock.semaphore.acquired") > 4 * u64::from(TASKS * ROUNDS));
}

#[test]
fn a_commit_serves_all_that_wait_for_it() {
    let (outcome, _) = files(&setup(Format::Xfs));
    // Each force of the log has one critical section of `xa_lock`.
    let forces = counter(&outcome, "lock.xa_lock.acquired");
    let syncs = u64::from(TASKS * ROUNDS);
    assert!((1..=syncs).contains(&forces), "{forces} forces for {syncs} syncs");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for format in [Format::Ext4, Format::Xfs] {
        let hash = || files(&setup(format)).0.history_hash;
        assert_eq!(hash(), hash());
    }
}
