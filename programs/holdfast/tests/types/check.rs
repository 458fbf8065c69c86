//! The feature `check`: what it reports, and what it must not report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex as StdMutex;
use std::thread;
use std::time::Duration;

use holdfast::check::{self, Violation, ViolationKind};
use holdfast::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

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

/// Two threads take turns on one CPU while one of them holds the lock: it is ready, but has no CPU, for a part of it.
#[test]
#[cfg(target_os = "linux")]
fn a_preempted_holder_is_seen() {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    // More busy threads than a small machine has CPUs would disturb other tests, so the file is looked at once only.
    check::measure_preemption(true);
    let (lock, done) = (Mutex::new(()), AtomicBool::new(false));
    let look = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _held = lock.lock();
            while !done.load(Relaxed) {
                thread::yield_now();
            }
        });
        while !lock.is_locked() {
            thread::yield_now();
        }
        let look = loop {
            let look = check::look(&lock);
            if look.holder.is_some() {
                break look;
            }
        };
        done.store(true, Relaxed);
        holder.join().unwrap();
        look
    });
    check::measure_preemption(false);
    let preempted = look.holder.unwrap().preempted;
    if std::path::Path::new("/proc/thread-self/schedstat").exists() {
        assert!(preempted.is_some(), "the holder's time without a CPU is known");
    } else {
        println!("SKIPPED: the kernel has no schedstat");
    }
}
