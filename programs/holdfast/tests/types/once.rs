//! Values made once: by one thread, seen by all, tried again after a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use holdfast::{LazyLock, Once, OnceLock};

#[test]
fn one_thread_makes_the_value_and_all_see_it() {
    for _ in 0..200 {
        let (cell, made, together) = (&OnceLock::new(), &AtomicU32::new(0), &Barrier::new(4));
        crate::on_threads(4, |number| {
            together.wait();
            let value = cell.get_or_init(|| {
                made.fetch_add(1, Relaxed);
                thread::yield_now();
                vec![number; 100]
            });
            assert!(value.iter().all(|&each| each == value[0]));
            assert_eq!(cell.get(), Some(value));
        });
        assert_eq!(made.load(Relaxed), 1);
    }
}

#[test]
fn a_value_is_set_once() {
    let mut cell = OnceLock::new();
    assert_eq!(cell.get(), None);
    assert_eq!(cell.set("a".to_owned()), Ok(()));
    assert_eq!(cell.set("b".to_owned()), Err("b".to_owned()));
    cell.get_mut().expect("set").push('c');
    assert_eq!(format!("{cell:?}"), "OnceLock(Some(\"ac\"))");
    assert_eq!(cell.take().as_deref(), Some("ac"));
    assert_eq!(cell.get(), None);
    assert_eq!(cell.get_or_init(|| "d".to_owned()), "d");
    assert_eq!(cell.into_inner().as_deref(), Some("d"));
    assert_eq!(OnceLock::from(1).get(), Some(&1));
}

#[test]
fn a_failed_attempt_leaves_the_cell_empty() {
    let cell = OnceLock::new();
    assert_eq!(cell.get_or_try_init(|| Err::<u32, _>("no")), Err("no"));
    let panics = catch_unwind(AssertUnwindSafe(|| {
        cell.get_or_init(|| panic!("while making the value"))
    }));
    assert!(panics.is_err() && cell.get().is_none());
    assert_eq!(cell.get_or_try_init(|| Ok::<_, &str>(1)), Ok(&1));
}

#[test]
fn code_runs_once_and_again_only_after_a_panic() {
    let (once, runs) = (Once::new(), AtomicU32::new(0));
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("the first time")))).is_err());
    assert!(!once.is_completed());
    crate::on_threads(3, |_| {
        once.call_once(|| {
            runs.fetch_add(1, Relaxed);
        });
        assert!(once.is_completed());
    });
    assert_eq!(runs.load(Relaxed), 1);
}

#[test]
fn a_lazy_value_is_made_when_it_is_used() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    static LAZY: LazyLock<u32> = LazyLock::new(|| 10 + MADE.fetch_add(1, Relaxed));
    assert_eq!(MADE.load(Relaxed), 0);
    crate::on_threads(3, |_| assert_eq!(*LAZY, 10));
    let captured = "text".to_owned();
    let lazy = LazyLock::new(|| captured.len());
    assert_eq!(*LazyLock::force(&lazy), 4);
}

#[test]
fn a_lazy_value_whose_making_panicked_cannot_be_used() {
    let lazy = LazyLock::<u32, _>::new(|| panic!("while making the value"));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *lazy)).is_err());
    }
}

#[test]
fn the_value_is_dropped_with_its_cell() {
    let value = std::sync::Arc::new(());
    let cell = OnceLock::new();
    assert!(cell.set(std::sync::Arc::clone(&value)).is_ok());
    drop(cell);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}
