//! Programs with planted mistakes, which the checkers must find through the types of this crate, and without, which
//! they must pass.
#![cfg(feature = "model")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast::{Condvar, Mutex, Once, OnceLock, RwLock};

#[cfg(feature = "loom")]
use loom::thread;
#[cfg(not(feature = "loom"))]
use shuttle::thread;

#[cfg(feature = "loom")]
fn check(body: impl Fn() + Send + Sync + 'static) {
    loom::model(body);
}
#[cfg(not(feature = "loom"))]
fn check(body: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(body, 500);
}

/// Returns whether the checker finds a schedule in which `body` fails.
fn fails(body: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(body))).is_err()
}

/// Runs `work` on two threads, of which one is the model's first.
fn twice(work: impl Fn() + Send + Sync + 'static) {
    let work = Arc::new(work);
    let other = thread::spawn({
        let work = work.clone();
        move || work()
    });
    work();
    other.join().unwrap();
}

#[test]
fn an_update_under_a_mutex_passes_and_one_in_two_sections_is_found() {
    let counted = |in_two: bool| {
        move || {
            let count = Arc::new(Mutex::new(0));
            twice({
                let count = count.clone();
                move || {
                    if in_two {
                        let seen = *count.lock();
                        *count.lock() = seen + 1;
                    } else {
                        *count.lock() += 1;
                    }
                }
            });
            assert_eq!(*count.lock(), 2, "an update is lost");
        }
    };
    check(counted(false));
    assert!(fails(counted(true)), "the lost update is not found");
}

#[test]
fn a_writer_excludes_and_an_update_after_reading_is_found() {
    let counted = |reads: bool| {
        move || {
            let count = Arc::new(RwLock::new(0));
            twice({
                let count = count.clone();
                move || {
                    if reads {
                        let seen = *count.read();
                        *count.write() = seen + 1;
                    } else {
                        *count.write() += 1;
                    }
                }
            });
            assert_eq!(*count.read(), 2, "an update is lost");
        }
    };
    check(counted(false));
    assert!(fails(counted(true)), "the lost update is not found");
}

#[test]
fn a_wait_with_a_condition_passes_and_one_without_is_found() {
    let told = |with_condition: bool| {
        move || {
            let pair = Arc::new((Mutex::new(false), Condvar::new()));
            let teller = thread::spawn({
                let pair = pair.clone();
                move || {
                    *pair.0.lock() = true;
                    pair.1.notify_one();
                }
            });
            let mut told = pair.0.lock();
            if with_condition {
                pair.1.wait_while(&mut told, |told| !*told);
            } else {
                pair.1.wait(&mut told);
            }
            assert!(*told);
            drop(told);
            teller.join().unwrap();
        }
    };
    check(told(true));
    assert!(fails(told(false)), "the lost wakeup is not found");
}

#[test]
fn opposite_orders_are_found() {
    let take = |opposite: bool| {
        move || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = thread::spawn({
                let locks = locks.clone();
                move || {
                    let (first, second) = if opposite {
                        (&locks.1, &locks.0)
                    } else {
                        (&locks.0, &locks.1)
                    };
                    let _first = first.lock();
                    let _second = second.lock();
                }
            });
            {
                let _first = locks.0.lock();
                let _second = locks.1.lock();
            }
            other.join().unwrap();
        }
    };
    check(take(false));
    assert!(fails(take(true)), "the deadlock is not found");
}

#[test]
fn code_runs_once_and_a_look_before_is_found_to_race() {
    check(|| {
        let (once, count) = (Arc::new(Once::new()), Arc::new(Mutex::new(0)));
        twice({
            let (once, count) = (once.clone(), count.clone());
            move || {
                once.call_once(|| *count.lock() += 1);
                assert!(once.is_completed());
            }
        });
        assert_eq!(*count.lock(), 1);
    });
    let raced = || {
        let value = Arc::new(OnceLock::new());
        twice({
            let value = value.clone();
            move || {
                if value.get().is_none() {
                    value.set(1).expect("no other thread has set it");
                }
            }
        });
    };
    assert!(fails(raced), "the race between the look and the write is not found");
}

#[test]
fn a_try_may_fail_and_a_limited_wait_lets_others_run() {
    check(|| {
        let mutex = Arc::new(Mutex::new(0));
        twice({
            let mutex = mutex.clone();
            move || {
                if let Some(mut count) = mutex.try_lock() {
                    *count += 1;
                }
                let changed = Condvar::new();
                let mut count = mutex.lock();
                assert!(
                    changed
                        .wait_for(&mut count, std::time::Duration::from_secs(1))
                        .timed_out()
                );
                assert!(*count <= 2);
            }
        });
    });
}
