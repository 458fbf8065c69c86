//! The reader-writer lock: who excludes whom, fairness, time limits, guards of all kinds.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::{RwLock, RwLockReadGuard, RwLockWriteGuard, poison};

/// Long enough for a waiter to sleep.
const SHORT: Duration = Duration::from_millis(5);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn readers_never_see_a_half_written_pair() {
    let (pair, writes) = (&RwLock::new((0_u32, 0_u32)), &AtomicU32::new(0));
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

#[test]
fn readers_hold_the_lock_together() {
    let (lock, together) = (&RwLock::new(()), &Barrier::new(3));
    crate::on_threads(3, |_| {
        let _guard = lock.read();
        together.wait();
        assert!(lock.try_write().is_none());
        together.wait();
    });
    assert!(!lock.is_locked());
}

#[test]
fn each_holder_excludes_whom_it_must() {
    let lock = RwLock::new(1);
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
#[test]
fn a_writer_gets_in_between_overlapping_readers() {
    let (lock, written) = (&RwLock::new(0), &AtomicBool::new(false));
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

#[test]
fn a_reader_gets_in_between_busy_writers() {
    let (lock, read) = (&RwLock::new(0), &AtomicBool::new(false));
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

#[test]
fn waits_end_at_their_time_limits_and_not_before() {
    let lock = RwLock::new(());
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

#[test]
fn a_wait_with_a_time_limit_gets_a_contended_lock() {
    let count = &RwLock::new(0);
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

#[test]
fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out() {
    let lock = &RwLock::new(0);
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

#[test]
fn guards_can_be_mapped_and_owned() {
    let lock = Arc::new(RwLock::new((1, 2)));
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
    static LOCK: RwLock<u32> = RwLock::new(1);
    assert_eq!(size_of_val(&LOCK), 12);
    assert_eq!(*LOCK.read(), 1);
}
