//! Threads as CPUs: numbers are unique, dense and recycled.

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex};
use std::thread;

use holdfast_locks::{CpuId, Platform};
use holdfast_threads::{CPUS_MAX, ClaimError, ThisThread, claim};

fn number() -> u32 {
    ThisThread::new().cpu().0
}

#[test]
fn numbers_are_unique_while_threads_run() {
    let _turn = crate::numbers();
    const THREADS: usize = 64;
    let (numbers, all) = (Mutex::new(BTreeSet::new()), Barrier::new(THREADS));
    crate::on_threads((0..THREADS).map(|_| {
        || {
            let mine = number();
            assert!(mine < CPUS_MAX);
            assert!(numbers.lock().unwrap().insert(mine), "CPU {mine} twice");
            all.wait();
            assert_eq!(number(), mine, "a thread keeps its number");
        }
    }));
    let dense: BTreeSet<u32> = (0..THREADS as u32).collect();
    assert_eq!(
        numbers.into_inner().unwrap(),
        dense,
        "the lowest free numbers are taken"
    );
}

/// The threads take long to end: a test that does not wait for their end would find their numbers in use.
#[test]
fn a_thread_that_has_ended_has_given_its_number_back() {
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            (0..100).for_each(|_| thread::yield_now());
        }
    }
    thread_local!(static SLOW: Slow = const { Slow });
    let _turn = crate::numbers();
    for _ in 0..50 {
        let claims = crate::on_threads((0..2).map(|cpu| {
            move || {
                SLOW.with(|_| ());
                claim(CpuId(cpu))
            }
        }));
        assert_eq!(claims, [Ok(()), Ok(())]);
    }
}

/// Starts one thread after another, more than there are numbers.
#[test]
fn numbers_are_recycled_when_threads_end() {
    let _turn = crate::numbers();
    for _ in 0..CPUS_MAX + 100 {
        thread::spawn(number).join().unwrap();
    }
}

#[test]
fn a_thread_may_be_a_cpu_again_in_its_last_destructors() {
    let _turn = crate::numbers();
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            number();
        }
    }
    thread_local!(static LATE: Late = const { Late });
    for _ in 0..CPUS_MAX + 100 {
        let thread = thread::spawn(|| {
            LATE.with(|_| ());
            number();
        });
        thread.join().unwrap();
    }
}

#[test]
fn claims_are_refused_with_the_reason() {
    let _turn = crate::numbers();
    assert_eq!(claim(CpuId(CPUS_MAX)), Err(ClaimError::OutOfRange(CpuId(CPUS_MAX))));
    let last = CpuId(CPUS_MAX - 1);
    let first = thread::spawn(move || {
        claim(last).unwrap();
        assert_eq!(claim(CpuId(0)), Err(ClaimError::AlreadyCpu(last)));
        let other = thread::spawn(move || claim(last)).join().unwrap();
        assert_eq!(other, Err(ClaimError::InUse(last)));
    });
    first.join().unwrap();
    let message = ClaimError::InUse(last).to_string();
    assert!(message.ends_with("another thread is CPU 16319"), "{message}");
}
