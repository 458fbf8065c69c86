//! The feature `check`: what it reports, and what it must not report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex as StdMutex;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::check::{self, Access, Violation, ViolationKind};
use holdfast::{Condvar, LazyLock, Mutex, MutexGuard, Once, RwLock, RwLockWriteGuard, poison};

/// The violations that the calling test has caused: the hook runs in the thread that violates.
fn violations(body: impl FnOnce()) -> Vec<Violation> {
    thread_local!(static FOUND: StdMutex<Vec<Violation>> = const { StdMutex::new(Vec::new()) });
    check::on_violation(|violation| FOUND.with(|found| found.lock().unwrap().push(violation.clone())));
    body();
    FOUND.with(|found| std::mem::take(&mut *found.lock().unwrap()))
}

#[inline(never)]
fn takes_first_then_second(first: &Mutex<()>, second: &Mutex<()>) {
    let _first = first.lock();
    let _second = second.lock();
}

#[inline(never)]
fn takes_second_then_first(first: &Mutex<()>, second: &Mutex<()>) {
    let _second = second.lock();
    let _first = first.lock();
}

#[test]
fn opposite_orders_are_reported_once_with_both_places() {
    let (first, second) = (Mutex::new(()), Mutex::new(()));
    check::name(&first, "first");
    check::name(&second, "second");
    let found = violations(|| {
        takes_first_then_second(&first, &second);
        takes_first_then_second(&first, &second);
        takes_second_then_first(&first, &second);
        takes_second_then_first(&first, &second);
    });
    let [violation] = &found[..] else { panic!("{found:?}") };
    assert_eq!(violation.kind, ViolationKind::Order);
    let names = violation.steps.iter().map(|step| (&step.held[..], &step.taken[..]));
    assert!(names.eq([("second", "first"), ("first", "second")]), "{violation}");
    // Where symbols are, each step names the function that took the locks.
    let report = violation.to_string();
    assert_eq!(report.matches("takes_second_then_first").count(), 2, "{report}");
    assert_eq!(report.matches("takes_first_then_second").count(), 2, "{report}");
    assert!(
        !report.contains("lock_api::"),
        "the library's own functions are left out: {report}"
    );
}

#[test]
fn a_circle_of_three_is_found_although_each_pair_is_in_order() {
    let [a, b, c] = [(); 3].map(|()| Mutex::new(()));
    let found = violations(|| {
        takes_first_then_second(&a, &b);
        takes_first_then_second(&b, &c);
        takes_first_then_second(&c, &a);
    });
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].steps.len(), 3);
}

#[test]
fn a_lock_that_was_not_waited_for_closes_no_circle() {
    let (first, second) = (Mutex::new(()), Mutex::new(()));
    let found = violations(|| {
        takes_first_then_second(&first, &second);
        let _second = second.lock();
        let _first = first.try_lock().expect("no other thread uses it");
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_order_of_a_dropped_lock_is_forgotten() {
    let first = Mutex::new(());
    let found = violations(|| {
        takes_first_then_second(&first, &Mutex::new(()));
        takes_second_then_first(&first, &Mutex::new(()));
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_mutex_taken_twice_panics_and_stays_locked() {
    let lock = Mutex::new(());
    let found = violations(|| {
        let held = lock.lock();
        let again = catch_unwind(AssertUnwindSafe(|| drop(lock.lock())));
        let message = *again.expect_err("it would wait forever").downcast::<String>().unwrap();
        assert!(message.starts_with("a thread takes a lock that it holds"), "{message}");
        assert!(lock.is_locked());
        drop(held);
        assert!(!lock.is_locked());
    });
    assert_eq!(found.len(), 1);
}

#[test]
fn reading_twice_is_reported_and_writing_after_reading_panics() {
    let lock = RwLock::new(());
    let found = violations(|| {
        let _one = lock.read();
        let _two = lock.read();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.write()))).is_err());
    });
    let kinds: Vec<_> = found.iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds[0], ViolationKind::ReadTwice);
    assert!(kinds[1..].iter().all(|&kind| kind == ViolationKind::Twice) && kinds.len() > 1);
    drop(RwLockWriteGuard::downgrade(lock.write()));
    assert!(!lock.is_locked());
}

#[test]
fn a_wait_releases_the_lock_so_another_order_is_no_mistake() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    let mut held = mutex.lock();
    changed.wait_for(&mut held, Duration::from_millis(1));
    drop(held);
    let look = check::look(&mutex);
    assert!(look.holder.is_none());
    assert_eq!(look.holds.count(), 2, "before and after the wait");
}

/// A wait takes its mutex again while the thread holds another one, which it took after the mutex.
#[test]
fn a_wait_with_another_lock_held_closes_a_circle_for_guards_of_all_kinds() {
    const SHORT: Duration = Duration::from_millis(1);
    type Wait = fn(&Condvar, &Arc<Mutex<()>>, &Mutex<()>);
    let waits: [Wait; 4] = [
        |changed, first, second| {
            let (mut held, _second) = (first.lock(), second.lock());
            changed.wait_for(&mut held, SHORT);
        },
        |changed, first, second| {
            let (mut held, _second) = (first.lock(), second.lock());
            changed.wait_until(&mut held, Instant::now() + SHORT);
        },
        |changed, first, second| {
            let (mut held, _second) = (first.lock_arc(), second.lock());
            changed.wait_while_for(&mut held, |()| true, SHORT);
        },
        |_, _, second| {
            let (first, changed) = (poison::Mutex::new(()), poison::Condvar::new());
            let (held, _second) = (first.lock().unwrap(), second.lock());
            drop(changed.wait_timeout(held, SHORT).unwrap());
        },
    ];
    for wait in waits {
        let (changed, first, second) = (Condvar::new(), Arc::new(Mutex::new(())), Mutex::new(()));
        let found = violations(|| wait(&changed, &first, &second));
        let [violation] = &found[..] else { panic!("{found:?}") };
        assert_eq!(violation.kind, ViolationKind::Order);
        assert_eq!(violation.steps[0].taken_as, Access::Wait);
        assert!(
            violation.to_string().contains("is taken again after a wait"),
            "{violation}"
        );
    }
}

/// The circle is found although the threads deadlock, and before they do.
#[test]
fn a_deadlock_by_a_wait_is_reported_before_it_happens() {
    static STATE: Mutex<bool> = Mutex::new(false);
    static OTHER: Mutex<()> = Mutex::new(());
    static CHANGED: Condvar = Condvar::new();
    let (reported, wait) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let found = violations(|| {
            let mut state = STATE.lock();
            let _other = OTHER.lock();
            CHANGED.wait_for(&mut state, Duration::from_millis(1));
        });
        reported.send(found.len()).unwrap();
        let mut state = STATE.lock();
        let _other = OTHER.lock();
        CHANGED.wait(&mut state);
    });
    assert_eq!(wait.recv_timeout(Duration::from_secs(10)), Ok(1));
    // Now they deadlock, and the process ends anyway.
    thread::spawn(|| {
        let mut state = STATE.lock();
        *state = true;
        CHANGED.notify_one();
        let _other = OTHER.lock();
    });
}

#[test]
fn waits_with_two_mutexes_at_once_are_reported_and_one_after_the_other_are_not() {
    let (changed, first, second) = (Condvar::new(), Mutex::new(()), Mutex::new(()));
    check::name(&first, "first");
    let together = Barrier::new(2);
    let found = violations(|| {
        for mutex in [&first, &second] {
            changed.wait_for(&mut mutex.lock(), Duration::from_millis(1));
        }
    });
    assert!(found.is_empty(), "{found:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = first.lock();
            together.wait();
            changed.wait(&mut held);
        });
        together.wait();
        drop(first.lock());
        let found = violations(|| {
            for _ in 0..2 {
                changed.wait_for(&mut second.lock(), Duration::from_millis(1));
            }
        });
        changed.notify_all();
        let [violation] = &found[..] else { panic!("{found:?}") };
        assert_eq!(violation.kind, ViolationKind::TwoMutexes);
        assert!(violation.to_string().contains("before: with first, at"), "{violation}");
    });
}

#[test]
fn a_report_says_which_lock_without_a_name_and_how_it_was_taken() {
    let (first, second) = (RwLock::new(()), Mutex::new(()));
    let found = violations(|| {
        drop((second.lock(), first.write()));
        drop((first.read(), second.lock()));
    });
    let report = found[0].to_string();
    assert!(report.contains(" is held by reading, taken at"), "{report}");
    assert!(report.contains(" is taken for writing at"), "{report}");
    let address = format!(" at {:#x}", std::ptr::from_ref(&second).addr());
    let near = &address[..address.len() - 3];
    assert!(report.contains(near), "{near}: {report}");
}

#[test]
fn a_value_that_asks_for_itself_is_a_lock_taken_twice() {
    static VALUE: LazyLock<u32> = LazyLock::new(|| *VALUE + 1);
    let once = Once::new();
    let found = violations(|| {
        assert!(catch_unwind(|| *VALUE).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| once.call_once(|| ())))).is_err());
    });
    let kinds: Vec<_> = found.iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [ViolationKind::Twice; 2]);
}

/// Runs an ignored test of this file in a process of its own, and returns what it says and whether it succeeds.
fn in_a_process(test: &str) -> (String, bool) {
    let mut run = Command::new(std::env::current_exe().unwrap());
    let ran = run
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    (String::from_utf8_lossy(&ran.stderr).into_owned(), ran.status.success())
}

#[test]
fn a_lock_taken_twice_is_reported_by_one_message_in_either_mode() {
    for (test, succeeds) in [("check::takes_twice", false), ("check::takes_twice_and_waits", true)] {
        let (said, succeeded) = in_a_process(test);
        assert_eq!(succeeded, succeeds, "{said}");
        assert_eq!(said.matches("a thread takes a lock that it holds").count(), 1, "{said}");
    }
}

#[test]
#[ignore = "for the test above"]
fn takes_twice() {
    let lock = Mutex::new(());
    let _held = lock.lock();
    let _again = lock.lock();
}

#[test]
#[ignore = "for the test above"]
fn takes_twice_and_waits() {
    static LOCK: Mutex<()> = Mutex::new(());
    check::report_only();
    thread::spawn(|| {
        let _held = LOCK.lock();
        let _again = LOCK.lock();
    });
    while check::violations() == 0 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(100));
    assert!(LOCK.is_locked(), "the thread waits");
}

#[test]
fn a_look_shows_the_holder_and_for_how_long_the_lock_was_held() {
    let lock = Mutex::new(0);
    let held = MutexGuard::map(lock.lock(), |value| value);
    thread::sleep(Duration::from_millis(2));
    let look = thread::scope(|scope| scope.spawn(|| check::look(&lock)).join()).unwrap();
    let holder = look.holder.expect("it is held");
    assert!(holder.held >= Duration::from_millis(2), "{holder:?}");
    assert!(holder.stack.unwrap().to_string().contains("a_look_shows_the_holder"));
    drop(held);
    let look = check::look(&lock);
    let classes: Vec<_> = look.holds.classes().collect();
    assert!(
        matches!(classes[..], [(below, 1)] if below > Duration::from_millis(2)),
        "{look}"
    );
}

/// A look that sees a holder knows for how long it had no CPU, however early the look is.
#[test]
#[cfg(target_os = "linux")]
fn a_preempted_holder_is_seen() {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    check::measure_preemption(true);
    let looks = [(); 100].map(|()| {
        let (lock, done) = (Mutex::new(()), AtomicBool::new(false));
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = lock.lock();
                while !done.load(Relaxed) {
                    thread::yield_now();
                }
            });
            let look = loop {
                let look = check::look(&lock);
                if look.holder.is_some() {
                    break look;
                }
            };
            done.store(true, Relaxed);
            holder.join().unwrap();
            look
        })
    });
    check::measure_preemption(false);
    let known = |look: &check::Look| look.holder.as_ref().unwrap().preempted.is_some();
    if std::path::Path::new("/proc/thread-self/schedstat").exists() {
        assert!(looks.iter().all(known), "the holder's time without a CPU is known");
    } else {
        println!("SKIPPED: the kernel has no schedstat");
    }
}
