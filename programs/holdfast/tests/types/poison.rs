//! Poisoning: set by a panic with the lock held, and by nothing else.

use std::panic::catch_unwind;
use std::time::Duration;

use holdfast::poison::{Mutex, TryLockError};

fn poisoned() -> Mutex<u32> {
    let mutex = Mutex::new(1);
    let panicked = catch_unwind(|| {
        let mut guard = mutex.lock().expect("a new mutex is not poisoned");
        *guard = 2;
        panic!("with the lock held");
    });
    assert!(panicked.is_err());
    mutex
}

#[test]
fn every_call_reports_the_poison_and_still_gives_the_data() {
    let mut mutex = poisoned();
    assert!(mutex.is_poisoned());
    assert_eq!(**mutex.lock().expect_err("poisoned").get_ref(), 2);
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(guard)) if **guard.get_ref() == 2));
    let tried = mutex.try_lock_for(Duration::ZERO);
    assert!(matches!(tried, Err(TryLockError::Poisoned(_))));
    drop(tried);
    assert_eq!(**mutex.get_mut().expect_err("poisoned").get_ref(), 2);
    assert!(format!("{mutex:?}").contains("poisoned: true"));
    assert_eq!(mutex.into_inner().expect_err("poisoned").into_inner(), 2);
}

#[test]
fn the_poison_can_be_removed() {
    let mutex = poisoned();
    mutex.clear_poison();
    assert!(mutex.lock().is_ok_and(|guard| *guard == 2));
}

#[test]
fn a_held_lock_is_no_poisoned_one() {
    let mutex = Mutex::new(0);
    let held = mutex.lock();
    assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    let tried = mutex.try_lock_for(Duration::from_millis(1));
    assert!(matches!(tried, Err(TryLockError::WouldBlock)));
    drop(tried);
    drop(held);
    assert!(!mutex.is_poisoned());
}

/// A destructor may lock while its thread panics. That is no reason to poison the lock.
#[test]
fn a_lock_taken_and_released_by_a_panicking_thread_is_not_poisoned() {
    struct Locks<'a>(&'a Mutex<u32>);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            *self.0.lock().expect("not poisoned") += 1;
        }
    }
    let mutex = Mutex::new(0);
    let panicked = catch_unwind(|| {
        let _locks = Locks(&mutex);
        panic!("without the lock");
    });
    assert!(panicked.is_err());
    assert!(mutex.lock().is_ok_and(|count| *count == 1));
}
