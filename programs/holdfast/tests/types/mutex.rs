//! The mutex: exclusion, time limits, guards of all kinds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast::{Mutex, MutexGuard};

/// Long enough for a waiter to give up spinning.
const SHORT: Duration = Duration::from_millis(5);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn updates_of_all_ways_to_lock_are_kept() {
    let count = &Mutex::new(0_u32);
    let deadline = Instant::now() + LONG;
    crate::on_threads(4, |number| {
        for _ in 0..2_000 {
            let mut guard = match number {
                0 | 1 => count.lock(),
                2 => count.try_lock_for(LONG).expect("the time is long enough"),
                _ => count.try_lock_until(deadline).expect("the time is long enough"),
            };
            *guard += 1;
        }
    });
    assert_eq!(*count.lock(), 8_000);
}

#[test]
fn a_wait_ends_at_its_time_limit_and_not_before() {
    let mutex = Mutex::new(());
    let held = mutex.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            assert!(mutex.try_lock_for(SHORT).is_none());
            assert!(start.elapsed() >= SHORT);
            assert!(mutex.try_lock_for(Duration::ZERO).is_none());
            assert!(mutex.try_lock_until(start).is_none(), "a time that has passed");
        });
    });
    drop(held);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    assert!(mutex.try_lock_for(Duration::MAX).is_some(), "a time beyond the clock");
}

#[test]
fn a_wait_with_the_longest_time_limit_gets_the_lock() {
    let mutex = &Mutex::new(());
    let held = mutex.lock();
    let (waits, waiting) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            waits.send(()).expect("the test waits");
            assert!(mutex.try_lock_for(Duration::MAX).is_some());
        });
        waiting.recv().expect("the thread runs");
        thread::sleep(SHORT);
        drop(held);
    });
}

/// A waiter with a time limit also gets a lock for which other threads queue.
#[test]
fn a_wait_with_a_time_limit_is_not_starved_by_a_queue() {
    let (count, goal) = (&Mutex::new(0_u32), 200);
    let done = &Mutex::new(0);
    crate::on_threads(4, |number| {
        while *done.lock() < goal {
            if number > 0 {
                *count.lock() += 1;
            } else if let Some(mut count) = count.try_lock_for(LONG) {
                *count += 1;
                *done.lock() += 1;
            }
        }
    });
    assert!(*count.lock() >= goal);
}

#[test]
fn a_mapped_guard_keeps_the_lock() {
    let mutex = Mutex::new((1, [2, 3]));
    let array = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
    let mut last = holdfast::MappedMutexGuard::map(array, |array| &mut array[1]);
    *last = 4;
    assert!(mutex.is_locked());
    drop(last);
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.lock(), (1, [2, 4]));
}

#[test]
fn an_owned_guard_outlives_its_creator() {
    fn guard() -> holdfast::ArcMutexGuard<u32> {
        Arc::new(Mutex::new(7)).lock_arc()
    }
    let guard = guard();
    assert_eq!(*guard, 7);
    assert!(holdfast::ArcMutexGuard::mutex(&guard).try_lock_arc().is_none());
}

/// Without the feature `check` the type is that of the lock, so nothing of the feature can be in its code.
#[cfg(not(any(feature = "check", feature = "slice_extension")))]
#[test]
fn without_checks_a_mutex_is_the_lock_of_threads_alone() {
    use std::any::TypeId;
    assert_eq!(
        TypeId::of::<holdfast::RawMutex>(),
        TypeId::of::<holdfast_threads::RawHybrid>()
    );
    assert_eq!(
        TypeId::of::<holdfast::RawRwLock>(),
        TypeId::of::<holdfast_threads::RawQueuedRwLock>()
    );
    assert_eq!(
        TypeId::of::<holdfast::RawBiasedRwLock>(),
        TypeId::of::<holdfast_threads::RawBiasedRwLock>()
    );
    assert_eq!(size_of::<Mutex<()>>(), 4);
    assert_eq!(size_of::<holdfast::RwLock<()>>(), 8);
}

#[cfg(not(feature = "check"))]
#[test]
fn a_mutex_takes_four_bytes_and_is_made_in_a_constant() {
    static MUTEX: Mutex<u32> = Mutex::new(1);
    assert_eq!(size_of_val(&MUTEX), 8);
    assert_eq!(*MUTEX.lock(), 1);
}

#[test]
fn a_panic_unlocks() {
    let mutex = Mutex::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("with the lock held");
    }));
    assert!(panicked.is_err());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn unsized_data_can_be_locked() {
    let mutex: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    mutex.lock()[0] = 4;
    assert_eq!(*mutex.lock(), [4, 2, 3]);
}

#[cfg(feature = "serde")]
#[test]
fn the_data_can_be_serialized() {
    let text = serde_json::to_string(&Mutex::new([1, 2])).expect("numbers can be serialized");
    assert_eq!(text, "[1,2]");
    let mutex: Mutex<[u8; 2]> = serde_json::from_str(&text).expect("an array of numbers");
    assert_eq!(mutex.into_inner(), [1, 2]);
}
