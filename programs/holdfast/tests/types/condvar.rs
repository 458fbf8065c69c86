//! The condition variable: notifications, broadcasts, time limits, guards of all kinds.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use holdfast::{Condvar, Mutex, poison};

/// Long enough for a waiter to sleep.
const SHORT: Duration = Duration::from_millis(5);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn two_threads_take_turns() {
    let (turn, changed) = (&Mutex::new(0_u32), &Condvar::new());
    crate::on_threads(2, |number| {
        for _ in 0..2_000 {
            let mut turn = turn.lock();
            changed.wait_while(&mut turn, |turn| *turn as usize % 2 != number);
            *turn += 1;
            changed.notify_one();
        }
    });
    assert_eq!(*turn.lock(), 4_000);
}

#[test]
fn a_broadcast_wakes_every_waiter() {
    const WAITERS: usize = 16;
    const ROUNDS: u32 = 50;
    let (round, changed) = (&Mutex::new((0_u32, 0)), &Condvar::new());
    crate::on_threads(WAITERS + 1, |number| {
        for this in 1..=ROUNDS {
            let mut state = round.lock();
            if number < WAITERS {
                state.1 += 1;
                changed.notify_all();
                changed.wait_while(&mut state, |state| state.0 < this);
            } else {
                changed.wait_while(&mut state, |state| state.1 < WAITERS as u32 * this);
                state.0 = this;
                drop(state);
                changed.notify_all();
            }
        }
    });
    assert_eq!(*round.lock(), (ROUNDS, WAITERS as u32 * ROUNDS));
}

#[test]
fn items_reach_their_takers_through_a_short_queue() {
    const ITEMS: u32 = 3_000;
    let queue = &Mutex::new(Vec::new());
    let (added, removed) = (&Condvar::new(), &Condvar::new());
    let taken = &AtomicU32::new(0);
    crate::on_threads(4, |number| {
        for item in 0..ITEMS {
            let mut queue = queue.lock();
            if number < 2 {
                removed.wait_while(&mut queue, |queue| queue.len() >= 4);
                queue.push(item);
                added.notify_one();
            } else {
                added.wait_while(&mut queue, |queue| queue.is_empty());
                taken.fetch_add(queue.pop().expect("not empty"), Relaxed);
                removed.notify_one();
            }
        }
    });
    assert_eq!(taken.load(Relaxed), ITEMS * (ITEMS - 1));
}

#[test]
fn without_waiters_a_notification_does_nothing() {
    let changed = Condvar::new();
    assert!(!changed.notify_one());
    assert_eq!(changed.notify_all(), 0);
    let mutex = Mutex::new(());
    assert!(
        changed.wait_for(&mut mutex.lock(), SHORT).timed_out(),
        "it was not kept"
    );
}

#[test]
fn a_wait_ends_at_its_time_limit_and_not_before() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    let start = Instant::now();
    let waited = changed.wait_while_for(&mut guard, |_| true, SHORT);
    assert!(waited.timed_out() && start.elapsed() >= SHORT);
    assert!(
        changed.wait_until(&mut guard, start).timed_out(),
        "a time that has passed"
    );
    assert!(
        !changed
            .wait_while_for(&mut guard, |_| false, Duration::ZERO)
            .timed_out()
    );
    assert!(mutex.is_locked());
    drop(guard);
    assert!(!mutex.is_locked());
}

#[test]
fn a_notified_waiter_with_a_time_limit_does_not_time_out() {
    let (ready, changed) = (&Mutex::new(false), &Condvar::new());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut ready = ready.lock();
            let long = changed.wait_while_for(&mut ready, |ready| !*ready, LONG);
            let endless = changed.wait_while_for(&mut ready, |ready| !*ready, Duration::MAX);
            long.timed_out() || endless.timed_out()
        });
        while changed.notify_all() == 0 {
            thread::yield_now();
        }
        *ready.lock() = true;
        changed.notify_all();
        assert_eq!(waiter.join().ok(), Some(false));
    });
}

/// Waiters give up and are notified at the same time. No notification may be lost by one that gives up.
#[test]
fn notifications_and_time_limits_race() {
    const TOKENS: u32 = 500;
    let (tokens, added) = (&Mutex::new(0_u32), &Condvar::new());
    let taken = &AtomicU32::new(0);
    crate::on_threads(5, |number| {
        if number == 0 {
            for _ in 0..TOKENS {
                *tokens.lock() += 1;
                added.notify_one();
                thread::yield_now();
            }
            return;
        }
        while taken.load(Relaxed) < TOKENS {
            let mut tokens = tokens.lock();
            let limit = Duration::from_micros(20 * number as u64);
            added.wait_while_for(&mut tokens, |tokens| *tokens == 0, limit);
            if *tokens > 0 {
                *tokens -= 1;
                taken.fetch_add(1, Relaxed);
            }
        }
    });
    assert_eq!((taken.load(Relaxed), *tokens.lock()), (TOKENS, 0));
}

#[test]
fn an_owned_guard_can_wait() {
    let shared = Arc::new((Arc::new(Mutex::new(0)), Condvar::new()));
    let other = Arc::clone(&shared);
    let waiter = thread::spawn(move || {
        let mut guard = other.0.lock_arc();
        other.1.wait_while(&mut guard, |count| *count == 0);
        *guard
    });
    *shared.0.lock() = 3;
    shared.1.notify_all();
    assert_eq!(waiter.join().ok(), Some(3));
}

/// Two groups of waiters with a mutex each share one condition variable. While one mutex is held, a broadcast must
/// reach the waiters with the other one.
#[test]
fn waiters_with_two_mutexes_do_not_depend_on_each_other() {
    let (mutexes, changed) = (&[Mutex::new((0, false)), Mutex::new((0, false))], &Condvar::new());
    let passed = &AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..6 {
            scope.spawn(move || {
                let mut state = mutexes[number % 2].lock();
                state.0 += 1;
                changed.wait_while(&mut state, |state| !state.1);
                if number % 2 == 1 {
                    passed.fetch_add(1, Relaxed);
                }
            });
        }
        for mutex in mutexes {
            while mutex.lock().0 < 3 {
                thread::yield_now();
            }
        }
        let mut held = mutexes[0].lock();
        held.1 = true;
        mutexes[1].lock().1 = true;
        changed.notify_all();
        while passed.load(Relaxed) < 3 {
            thread::yield_now();
        }
    });
}

#[test]
fn the_signatures_of_std_work() {
    let (ready, changed) = (&poison::Mutex::new(0), &poison::Condvar::new());
    let not_poisoned = "no thread panics";
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = ready.lock().expect(not_poisoned);
            let mut guard = changed.wait_while(guard, |ready| *ready < 1).expect(not_poisoned);
            *guard += 1;
            changed.notify_all();
        });
        *ready.lock().expect(not_poisoned) += 1;
        changed.notify_one();
        let mut guard = ready.lock().expect(not_poisoned);
        while *guard < 2 {
            guard = changed.wait(guard).expect(not_poisoned);
        }
        let (guard, waited) = changed.wait_timeout(guard, SHORT).expect(not_poisoned);
        assert!(waited.timed_out());
        let (_, waited) = changed
            .wait_timeout_while(guard, LONG, |ready| *ready < 2)
            .expect(not_poisoned);
        assert!(!waited.timed_out());
    });
}

#[test]
fn a_wait_reports_poison() {
    let (mutex, changed) = (poison::Mutex::new(()), poison::Condvar::new());
    let guard = mutex.lock().expect("not poisoned");
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _guard = mutex.lock();
            panic!("with the lock held");
        });
        let waited = changed.wait_timeout(guard, LONG / 60_000);
        assert!(panics.join().is_err());
        // The wait may have ended before the panic; then the next look finds the poison.
        assert!(waited.is_err() || mutex.is_poisoned());
    });
}
