//! Tests of fork, exec, exit and wait.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Config, Executable, FileId, Fork, Limits, RwLocks, Start, Touch};

use crate::machine::{Setup, counter, lead, run, try_run};

fn program() -> Executable {
    Executable {
        file: FileId(2),
        library_first: FileId(0),
        libraries: 2,
        pages: 10,
    }
}

#[test]
fn every_child_is_reaped_once_and_its_slot_used_again() {
    for (hogs, bare_metal, rwlocks) in [
        (0, false, RwLocks::WritersOnly),
        (4, false, RwLocks::Queued),
        (4, false, RwLocks::Unqueued),
        (0, true, RwLocks::WritersOnly),
    ] {
        let limits = Limits {
            tasks: 12,
            files: 4,
            ..Limits::default()
        };
        let setup = Setup {
            hogs,
            bare_metal,
            limits,
            kernel: Config {
                rwlocks,
                ..Config::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| match start.role {
            0 => lead(os, 3),
            1 => {
                for argument in 0..60 {
                    let how = if argument % 2 == 0 {
                        Fork::Borrow
                    } else {
                        Fork::Copy { vmas: 5 }
                    };
                    os.fork(how, Start::new(2, argument));
                    os.fork(how, Start::new(2, argument + 1_000));
                    let (one, other) = (os.wait().expect("two children"), os.wait().expect("one more"));
                    assert_ne!(one.task, other.task);
                    assert_eq!(one.start.argument.abs_diff(other.start.argument), 1_000);
                    assert!(os.try_wait().is_none());
                }
            }
            _ => {
                os.exec(&program());
                os.user_touching(
                    50_000,
                    Touch {
                        anonymous: 20,
                        file: 10,
                        copied: 0,
                    },
                );
            }
        });
        assert_eq!(counter(&outcome, "guest.forks"), 3 + 3 * 120);
        assert_eq!(counter(&outcome, "guest.execs"), 3 * 120);
    }
}

#[test]
fn a_borrowed_address_space_keeps_its_lender_waiting() {
    let stage = Rc::new(Cell::new(0));
    run(&Setup::default(), move |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            os.fork(Fork::Borrow, Start::new(1, 0));
            assert!(stage.get() >= 1, "the parent went on before the child executed");
            assert!(stage.get() < 3, "the parent waited for the child's exit");
            os.wait();
            assert_eq!(stage.get(), 3);
            os.done(None);
        }
        _ => {
            os.user(2_000_000);
            stage.set(1);
            os.exec(&program());
            stage.set(2);
            os.user(2_000_000);
            stage.set(3);
        }
    });
}

#[test]
fn too_many_tasks_are_the_guests_fault() {
    let limits = Limits {
        tasks: 3,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::default()
    };
    let failure = try_run(&setup, |os, start| {
        if start.role == 0 {
            lead(os, 5);
        } else {
            os.user(10_000_000);
        }
    });
    let message = failure.expect_err("three slots do not hold six tasks").to_string();
    assert!(message.contains("task slots"), "{message}");
}

#[test]
fn a_parent_that_leaves_children_is_told() {
    let failure = try_run(&Setup::default(), |os, start| match start.role {
        0 => lead(os, 1),
        1 => os.fork(Fork::Copy { vmas: 1 }, Start::new(2, 0)),
        _ => os.user(1_000_000),
    });
    let message = failure.expect_err("an orphan").to_string();
    assert!(message.contains("unreaped"), "{message}");
}

#[test]
fn a_process_gives_its_memory_back_at_its_end_and_a_thread_leaves_it() {
    // Pages enter and leave the LRU lists in batches of 14.
    const CHILDREN: u64 = 10;
    let batches = |how| {
        let setup = Setup {
            pcpus: 1,
            vcpus: 1,
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, start| match start.role {
            0 => {
                os.begin();
                for _ in 0..CHILDREN {
                    os.fork(how, Start::new(1, 0));
                    os.wait();
                }
                os.done(None);
            }
            _ => os.user_touching(0, Touch::anonymous(28)),
        });
        counter(&outcome, "lock.lru.acquired")
    };
    assert_eq!(batches(Fork::Copy { vmas: 1 }), 4 * CHILDREN);
    assert_eq!(batches(Fork::Share), 2 * CHILDREN);
}

#[test]
fn on_the_machine_itself_a_task_alone_is_never_switched() {
    let counts = |tasks| {
        let setup = Setup {
            pcpus: 1,
            vcpus: 1,
            bare_metal: true,
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, start| match start.role {
            0 => lead(os, tasks),
            _ => (0..100).for_each(|_| os.sleep(100_000)),
        });
        ["context_switches", "migrations"].map(|name| counter(&outcome, &format!("guest.{name}")))
    };
    let [one, two] = [1, 2].map(counts);
    assert!(one[0] < 10, "{} switches of one task", one[0]);
    assert!(two[0] > 150, "{} switches of two tasks", two[0]);
    assert_eq!([one[1], two[1]], [0, 0], "there is one CPU");
}

#[test]
fn on_the_machine_itself_each_change_of_a_tasks_cpu_is_counted() {
    let moves = Rc::new(Cell::new(0));
    let noted = moves.clone();
    let setup = Setup {
        pcpus: 3,
        vcpus: 3,
        bare_metal: true,
        ..Setup::default()
    };
    let outcome = run(&setup, move |os, start| {
        if start.role == 0 {
            return lead(os, 5);
        }
        let mut cpu = os.cpu();
        for round in 0..100 {
            os.sleep(u64::from(start.argument * 37 + round) * 1_009 % 90_000);
            os.user(u64::from(start.argument * 53 + round) * 997 % 60_000);
            noted.set(noted.get() + u64::from(os.cpu() != cpu));
            cpu = os.cpu();
        }
    });
    // A task may move there and back, or before it notes its CPU.
    let (noted, counted) = (moves.get(), counter(&outcome, "guest.migrations"));
    assert!(noted > 0, "no task moved");
    assert!(
        (noted..=noted * 3 / 2 + 20).contains(&counted),
        "{counted} moves counted, {noted} seen"
    );
}

#[test]
fn readers_of_the_task_list_take_its_lock_where_it_is_one_of_readers_and_writers() {
    // Each wait reads the list. It is written by a fork, an end and a reaping.
    const CHILDREN: u64 = 20;
    let taken = |rwlocks| {
        let setup = Setup {
            kernel: Config {
                rwlocks,
                ..Config::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                os.wait_for_cpus();
                os.begin();
                for _ in 0..CHILDREN {
                    os.fork(Fork::Share, Start::new(1, 0));
                    os.sleep(1_000_000);
                    assert!(os.try_wait().is_some());
                }
                os.done(None);
            }
        });
        counter(&outcome, "lock.tasklist.acquired")
    };
    for form in [RwLocks::Unqueued, RwLocks::Queued] {
        assert_eq!(taken(form), taken(RwLocks::WritersOnly) + CHILDREN, "{form:?}");
    }
}
