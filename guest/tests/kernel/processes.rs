//! Tests of fork, exec, exit and wait.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Executable, FileId, Fork, Limits, Start, Touch};

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
    for (hogs, bare_metal) in [(0, false), (4, false), (0, true)] {
        let limits = Limits {
            tasks: 12,
            files: 4,
            ..Limits::default()
        };
        let setup = Setup {
            hogs,
            bare_metal,
            limits,
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
