//! The reader-writer lock: who excludes whom, fairness, time limits, guards of all kinds.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::lock_api::{RawRwLockDowngrade, RawRwLockTimed, RwLock, RwLockReadGuard, RwLockWriteGuard};
use holdfast::poison;

/// What the raw reader-writer locks of the crate can do.
trait Raw: RawRwLockTimed<Duration = Duration, Instant = Instant> + RawRwLockDowngrade + Send + Sync {}
impl<R: RawRwLockTimed<Duration = Duration, Instant = Instant> + RawRwLockDowngrade + Send + Sync> Raw for R {}

/// Makes a test of each function, for each lock.
macro_rules! tests {
    ($($name:ident)+) => {
        mod plain {
            $(#[test]
            fn $name() {
                super::$name::<holdfast::RawRwLock>();
            })+
        }
        mod biased {
            $(#[test]
            fn $name() {
                super::$name::<holdfast::RawBiasedRwLock>();
            })+
        }
    };
}

tests! {
    readers_never_see_a_half_written_pair
    readers_hold_the_lock_together
    each_holder_excludes_whom_it_must
    a_writer_gets_in_between_overlapping_readers
    a_reader_gets_in_between_busy_writers
    waits_end_at_their_time_limits_and_not_before
    a_wait_with_a_time_limit_gets_a_contended_lock
    a_downgraded_writer_lets_readers_in_and_keeps_writers_out
    guards_can_be_mapped_and_owned
}

/// Long enough for a waiter to sleep.
const SHORT: Duration = Duration::from_millis(5);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

fn readers_never_see_a_half_written_pair<R: Raw>() {
    let (pair, writes) = (&RwLock::<R, _>::new((0_u32, 0_u32)), &AtomicU32::new(0));
    for threads in [2, 6] {
        crate::on_threads(threads, |number| {
            for round in 0..2_000 {
                if (round + number) % 4 == 0 {
                    let mut pair = pair.write();
                    pair.0 += 1;
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    pair.1 += 1;
                    writes.fetch_add(1, Relaxed);
                } else {
                    let pair = pair.read();
                    assert_eq!(pair.0, pair.1, "a reader and a writer at the same time");
                }
            }
        });
    }
    let written = writes.load(Relaxed);
    assert_eq!(*pair.read(), (written, written), "updates were lost");
}

fn readers_hold_the_lock_together<R: Raw>() {
    let (lock, together) = (&RwLock::<R, _>::new(()), &Barrier::new(3));
    crate::on_threads(3, |_| {
        let _guard = lock.read();
        together.wait();
        assert!(lock.try_write().is_none());
        together.wait();
    });
    assert!(!lock.is_locked());
}

fn each_holder_excludes_whom_it_must<R: Raw>() {
    let lock = RwLock::<R, _>::new(1);
    let reader = lock.read();
    assert!(lock.try_write().is_none());
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert_eq!(lock.try_read().map(|guard| *guard), Some(1));
    drop(reader);
    let writer = lock.try_write().expect("no reader is left");
    assert!(lock.is_locked_exclusive());
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    drop(writer);
    assert!(!lock.is_locked());
}

/// Readers overlap all the time: each takes the lock before another one releases it.
fn a_writer_gets_in_between_overlapping_readers<R: Raw>() {
    let (lock, written) = (&RwLock::<R, _>::new(0), &AtomicBool::new(false));
    let started = &Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut held = lock.read();
                started.wait();
                while !written.load(Relaxed) {
                    // A second guard of the same thread only if that cannot wait.
                    match lock.try_read() {
                        Some(next) => held = next,
                        None => {
                            drop(held);
                            held = lock.read();
                        }
                    }
                }
                drop(held);
            });
        }
        started.wait();
        for _ in 0..20 {
            *lock.write() += 1;
        }
        written.store(true, Relaxed);
    });
    assert_eq!(*lock.read(), 20);
}

fn a_reader_gets_in_between_busy_writers<R: Raw>() {
    let (lock, read) = (&RwLock::<R, _>::new(0), &AtomicBool::new(false));
    crate::on_threads(3, |number| {
        if number == 0 {
            for _ in 0..20 {
                assert!(*lock.read() >= 0);
            }
            read.store(true, Relaxed);
        } else {
            while !read.load(Relaxed) {
                *lock.write() += 1;
            }
        }
    });
}

fn waits_end_at_their_time_limits_and_not_before<R: Raw>() {
    let lock = RwLock::<R, _>::new(());
    let writer = lock.write();
    let start = Instant::now();
    assert!(lock.try_read_for(SHORT).is_none());
    assert!(start.elapsed() >= SHORT);
    assert!(lock.try_write_for(SHORT).is_none());
    assert!(start.elapsed() >= 2 * SHORT);
    assert!(lock.try_read_until(start).is_none());
    drop(writer);
    let reader = lock.try_read_for(LONG).expect("free");
    assert!(lock.try_write_until(Instant::now() + SHORT).is_none());
    drop(reader);
    assert!(lock.try_write_for(Duration::MAX).is_some());
}

fn a_wait_with_a_time_limit_gets_a_contended_lock<R: Raw>() {
    let count = &RwLock::<R, _>::new(0);
    crate::on_threads(4, |number| {
        for _ in 0..300 {
            if number % 2 == 0 {
                *count.try_write_for(LONG).expect("the time is long enough") += 1;
            } else {
                *count.write() += 1;
                assert!(*count.try_read_for(LONG).expect("the time is long enough") > 0);
            }
        }
    });
    assert_eq!(*count.read(), 1_200);
}

fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out<R: Raw>() {
    let lock = &RwLock::<R, _>::new(0);
    let mut writer = lock.write();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            *lock.write() += 10;
        });
        thread::sleep(SHORT);
        *writer += 1;
        let reader = RwLockWriteGuard::downgrade(writer);
        thread::sleep(SHORT);
        assert_eq!(*reader, 1, "a writer came in between");
        drop(reader);
        assert!(other.join().is_ok());
    });
    assert_eq!(*lock.read(), 11);
    let reader = RwLockWriteGuard::downgrade(lock.write());
    assert!(lock.try_read().is_some());
    drop(reader);
}

fn guards_can_be_mapped_and_owned<R: Raw>() {
    let lock = Arc::new(RwLock::<R, _>::new((1, 2)));
    let second = RwLockReadGuard::map(lock.read(), |pair| &pair.1);
    assert_eq!(*second, 2);
    assert!(lock.try_write().is_none());
    drop(second);
    *RwLockWriteGuard::map(lock.write(), |pair| &mut pair.0) = 3;
    let owned = lock.read_arc();
    assert_eq!(owned.0, 3);
    assert!(lock.try_write_arc().is_none());
}

#[test]
fn only_writers_poison() {
    let mut lock = poison::RwLock::new(1);
    let reads = catch_unwind(|| {
        let _guard = lock.read().expect("not poisoned");
        panic!("while reading");
    });
    assert!(reads.is_err() && !lock.is_poisoned());
    let writes = catch_unwind(|| {
        let mut guard = lock.write().expect("not poisoned");
        *guard = 2;
        panic!("while writing");
    });
    assert!(writes.is_err() && lock.is_poisoned());
    assert!(lock.read().is_err() && lock.write().is_err() && lock.try_read().is_err() && lock.try_write().is_err());
    assert!(lock.get_mut().is_err());
    lock.clear_poison();
    let reader = poison::RwLockWriteGuard::downgrade(lock.write().expect("cleared"));
    assert_eq!(*reader, 2);
    drop(reader);
    assert_eq!(lock.into_inner().ok(), Some(2));
}

#[cfg(not(feature = "check"))]
#[test]
fn a_lock_takes_eight_bytes_and_is_made_in_a_constant() {
    static LOCK: holdfast::RwLock<u32> = holdfast::RwLock::new(1);
    assert_eq!(size_of_val(&LOCK), 12);
    assert_eq!(*LOCK.read(), 1);
    static BIASED: holdfast::BiasedRwLock<u32> = holdfast::BiasedRwLock::new(1);
    assert_eq!(size_of_val(&BIASED), 16);
    assert_eq!(*BIASED.read(), 1);
}

/// Some thousand reads between writes, so that the lock is biased and revoked in turn.
#[test]
fn a_lock_that_is_biased_and_revoked_in_turn_excludes() {
    let pair = &holdfast::BiasedRwLock::new((0_u32, 0_u32));
    crate::on_threads(4, |number| {
        for round in 0..80_000 {
            if round % 8_000 == 2_000 * number {
                let mut pair = pair.write();
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            } else {
                let pair = pair.read();
                assert_eq!(pair.0, pair.1, "a reader and a writer at the same time");
            }
        }
    });
    assert_eq!(*pair.read(), (40, 40), "updates were lost");
}

#[test]
fn a_lock_in_the_place_of_one_whose_reader_was_forgotten_can_be_written() {
    let mut place = [Some(holdfast::BiasedRwLock::new(1))];
    let address = |place: &[Option<holdfast::BiasedRwLock<u32>>; 1]| std::ptr::from_ref(place).addr();
    let first = address(&place);
    let bias = |lock: &holdfast::BiasedRwLock<u32>| (0..1024).for_each(|_| drop(lock.read()));
    place[0].iter().for_each(bias);
    std::mem::forget(place[0].as_ref().map(|lock| lock.read()));
    place[0] = None;
    place[0] = Some(holdfast::BiasedRwLock::new(2));
    let lock = place[0].as_ref().expect("just made");
    bias(lock);
    assert_eq!(lock.try_write().map(|data| *data), Some(2));
    assert_eq!(address(&place), first);
}
