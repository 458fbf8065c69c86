//! File systems: their journals and their sleeping locks.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Config, FileId, Format, Limits, RwLocks};
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
            for (hogs, rwlocks) in [
                (0, RwLocks::WritersOnly),
                (0, RwLocks::Unqueued),
                (6, RwLocks::WritersOnly),
                (6, RwLocks::Unqueued),
                (6, RwLocks::Queued),
            ] {
                let (_, rounds) = files(&Setup {
                    kernel: Config {
                        lock,
                        rwlocks,
                        ..Config::default()
                    },
                    hogs,
                    ..setup(format)
                });
                assert_eq!(rounds, TASKS * ROUNDS, "{format:?}, {lock}, {hogs} hogs, {rwlocks:?}");
            }
        }
    }
}

#[test]
fn file_systems_meet_at_locks_of_their_own() {
    let taken = |format, class: &str| counter(&files(&setup(format)).0, &format!("lock.{class}.acquired"));
    let (plain, ext4, xfs): (&[Format], &[Format], &[Format]) = (&[Format::Plain], &[Format::Ext4], &[Format::Xfs]);
    for (class, formats) in [
        ("journal", plain),
        ("j_list_lock", ext4),
        ("bgl_lock", ext4),
        ("inode_hash_lock", ext4),
        ("i_block_reservation_lock", ext4),
        ("xc_cil_lock", xfs),
        ("xc_push_lock", xfs),
        ("pag_buf_lock", xfs),
        ("pag_ici_lock", xfs),
        ("semaphore", xfs),
        ("private_lock", &[Format::Ext4, Format::Xfs]),
        ("wb_list_lock", &[Format::Ext4, Format::Xfs]),
    ] {
        for other in [Format::Plain, Format::Ext4, Format::Xfs] {
            assert_eq!(
                taken(other, class) > 0,
                formats.contains(&other),
                "{class} on {other:?}"
            );
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

/// The calls of one task whose locks are measured.
#[derive(Clone, Copy, Debug)]
enum Call {
    CreateUnlink,
    Append,
    AppendSync,
}

/// Acquisitions of locks of `class` per call, by one task on one disk.
fn per_call(format: Format, call: Call, class: &str) -> f64 {
    const CALLS: u32 = 20;
    let acquired = |calls: u32| {
        let mut setup = setup(format);
        (setup.vcpus, setup.pcpus) = (1, 1);
        setup.limits.volumes = 1;
        let outcome = run(&setup, move |os, start| {
            if start.role == 0 {
                return lead(os, 1);
            }
            let (directory, file) = (FileId(0), FileId(1));
            if !matches!(call, Call::CreateUnlink) {
                os.create(directory, file, 2);
            }
            for _ in 0..calls {
                match call {
                    Call::CreateUnlink => {
                        os.create(directory, file, 2);
                        os.close(file);
                        os.unlink(directory, file, 2);
                    }
                    Call::Append => os.write(file, 1),
                    Call::AppendSync => {
                        os.write(file, 8);
                        os.sync(file, 8);
                    }
                }
            }
        });
        counter(&outcome, &format!("lock.{class}.acquired")) as f64
    };
    (acquired(2 * CALLS) - acquired(CALLS)) / f64::from(CALLS)
}

#[test]
fn calls_take_the_locks_that_are_measured() {
    // Figures of docs/spec/costs.md and docs/kernels.md, of locks that 3.14 has, too.
    for (format, call, class, measured) in [
        (Format::Ext4, Call::CreateUnlink, "bgl_lock", 3.0),
        (Format::Ext4, Call::CreateUnlink, "inode_hash_lock", 2.0),
        (Format::Ext4, Call::CreateUnlink, "wait_queue", 3.0),
        (Format::Ext4, Call::Append, "tree_lock", 2.0),
        (Format::Ext4, Call::Append, "i_block_reservation_lock", 1.0),
        (Format::Ext4, Call::Append, "wait_queue", 1.0),
        // Three blocks: 3 times access, dirty, journal's copy, shadow, and 13 in the commit.
        (Format::Ext4, Call::AppendSync, "j_list_lock", 26.0),
        (Format::Xfs, Call::CreateUnlink, "semaphore", 24.3),
        (Format::Xfs, Call::Append, "tree_lock", 2.0),
        (Format::Xfs, Call::AppendSync, "l_icloglock", 10.0),
    ] {
        let found = per_call(format, call, class);
        assert!(
            (found / measured - 1.0).abs() < 0.25,
            "{format:?}, {call:?}, {class}: {found} acquisitions, {measured} measured"
        );
    }
}

#[test]
fn a_block_is_filed_once_in_a_transaction() {
    // All these writes change one inode, and no commit begins a new transaction.
    assert_eq!(per_call(Format::Ext4, Call::Append, "j_list_lock"), 0.0);
    assert!(per_call(Format::Ext4, Call::AppendSync, "j_list_lock") > 8.0);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for format in [Format::Ext4, Format::Xfs] {
        let hash = || files(&setup(format)).0.history_hash;
        assert_eq!(hash(), hash());
    }
}

/// Tasks on one disk of ext4: `syncing` of them write and sync their file, the others make and remove theirs.
fn crowd(syncing: u32) -> holdfast_sim::Outcome {
    let mut setup = setup(Format::Ext4);
    setup.limits.volumes = 1;
    run(&setup, move |os, start| {
        if start.role == 0 {
            return lead(os, TASKS);
        }
        let (directory, file) = (FileId(0), FileId(1 + start.argument));
        if start.argument < syncing {
            os.create(directory, file, 2);
        }
        for _ in 0..4 * ROUNDS {
            if start.argument < syncing {
                os.write(file, 1);
                os.sync(file, 1);
            } else {
                os.create(directory, file, 2);
                os.write(file, 1);
                os.close(file);
                os.unlink(directory, file, 2);
            }
        }
    })
}

#[test]
fn handles_wait_for_commits_and_for_what_these_write() {
    let (with, without) = (crowd(TASKS / 2), crowd(0));
    let waits = [
        "journal_commits",
        "journal_transaction_waits",
        "journal_log_waits",
        "journal_log_copies",
    ];
    for name in waits {
        let name = format!("guest.{name}");
        assert!(counter(&with, &name) > 0, "{name} with commits");
        assert_eq!(counter(&without, &name), 0, "{name} without commits");
    }
    let syncs = u64::from(TASKS / 2 * 4 * ROUNDS);
    let commits = counter(&with, "guest.journal_commits");
    assert!(
        (4 * u64::from(ROUNDS)..=syncs).contains(&commits),
        "{commits} commits for {syncs} syncs"
    );
}
