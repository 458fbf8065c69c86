//! Each type, used by two threads in all ways, with few steps: Miri executes it in seconds.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use holdfast::poison;
use holdfast::{BiasedRwLock, Condvar, LazyLock, Mutex, MutexGuard, Once, OnceLock, RwLock, lock_api};

const ROUNDS: u32 = 3;

#[test]
fn a_mutex() {
    let mutex = &Arc::new(Mutex::new((0, 0)));
    crate::on_threads(2, |number| {
        for _ in 0..ROUNDS {
            mutex.lock().0 += 1;
            *MutexGuard::map(mutex.lock(), |pair| &mut pair.0) += 1;
            mutex.lock_arc().0 += 1;
            MutexGuard::unlocked(&mut mutex.lock(), || mutex.lock().0 += 1);
            if let Some(mut pair) = mutex.try_lock() {
                pair.1 += number as u32;
            }
            if let Some(mut pair) = mutex.try_lock_for(Duration::from_micros(50)) {
                pair.1 += 1;
            }
        }
    });
    assert_eq!(mutex.lock().0, 2 * 4 * ROUNDS);
}

/// A broadcast finds a thread that waits.
#[test]
fn a_condition_variable() {
    static STATE: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    let waits = thread::spawn(|| {
        let mut state = STATE.lock();
        *state = 1;
        while *state < 2 {
            CHANGED.wait(&mut state);
        }
    });
    while *STATE.lock() == 0 {
        thread::yield_now();
    }
    *STATE.lock() = 2;
    CHANGED.notify_all();
    waits.join().expect("it is notified");
}

#[test]
fn a_condition_variable_for_turns_and_with_time_limits() {
    let (turn, changed) = (&Arc::new(Mutex::new(0)), &Condvar::new());
    crate::on_threads(2, |number| {
        for _ in 0..ROUNDS {
            let mut turn = turn.lock_arc();
            changed.wait_while(&mut turn, |turn| *turn as usize % 2 != number);
            *turn += 1;
            changed.notify_one();
            let _ = changed.wait_for(&mut turn, Duration::from_micros(20));
        }
    });
    assert_eq!(*turn.lock(), 2 * ROUNDS);
}

macro_rules! reader_writer_locks {
    ($($name:ident: $lock:ident),+) => {$(
        #[test]
        fn $name() {
            let pair = &Arc::new($lock::new((0, 0)));
            crate::on_threads(2, |number| {
                for _ in 0..ROUNDS {
                    let seen = pair.read();
                    assert_eq!(seen.0, seen.1);
                    drop(seen);
                    let mut both = pair.write();
                    both.0 += 1;
                    both.1 += 1;
                    let seen = lock_api::RwLockWriteGuard::downgrade(both);
                    assert_eq!(seen.0, seen.1);
                    drop(seen);
                    if number == 0 {
                        drop((pair.try_read(), pair.try_write()));
                        drop(pair.try_read_for(Duration::from_micros(20)));
                        drop(pair.try_write_for(Duration::from_micros(20)));
                    } else {
                        drop(pair.read_arc());
                    }
                }
            });
            assert_eq!(*pair.read(), (2 * ROUNDS, 2 * ROUNDS));
        }
    )+};
}

reader_writer_locks!(a_reader_writer_lock: RwLock, a_reader_writer_lock_with_a_bias: BiasedRwLock);

/// Threads announce themselves as readers after a number of reads without a bias.
#[test]
fn readers_with_a_bias_and_a_writer_that_ends_it() {
    let count = &BiasedRwLock::new(0);
    crate::on_threads(2, |number| {
        for read in 0..1100 {
            let seen = count.read();
            if number == 0 && read == 1090 {
                drop(seen);
                *count.write() += 1;
            }
        }
    });
    assert_eq!(*count.read(), 1);
}

#[test]
fn values_that_are_made_once() {
    static LAZY: LazyLock<Vec<u32>> = LazyLock::new(|| vec![7]);
    let (once, cell, runs) = (&Once::new(), &OnceLock::new(), &AtomicU32::new(0));
    crate::on_threads(2, |number| {
        once.call_once(|| _ = runs.fetch_add(1, Relaxed));
        assert!(*cell.get_or_init(|| number) < 2);
        assert_eq!(LAZY[0], 7);
    });
    assert_eq!(runs.load(Relaxed), 1);
}

#[test]
fn types_with_poison() {
    let (mutex, pair, changed) = (&poison::Mutex::new(0), &poison::RwLock::new(0), &poison::Condvar::new());
    crate::on_threads(2, |number| {
        let mut turn = mutex.lock().unwrap();
        while *turn != number {
            turn = changed.wait(turn).unwrap();
        }
        *turn += 1;
        changed.notify_all();
        drop(turn);
        let seen = *pair.read().unwrap();
        *pair.write().unwrap() += seen;
    });
    let panics = || {
        let _held = mutex.lock().unwrap();
        panic!("on purpose");
    };
    assert!(thread::scope(|scope| scope.spawn(panics).join()).is_err());
    assert!(mutex.is_poisoned());
}
