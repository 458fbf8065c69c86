//! Methods of `parking_lot`: they are here, or `docs/programs/types.md` says that they are not.

use std::sync::Arc;

use holdfast::{Condvar, Mutex, MutexGuard, Once, RwLock};

/// What a program finds here as it does in `parking_lot`.
#[test]
fn methods_of_parking_lot_are_here() {
    let mutex = Mutex::new((0, 1));
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, || assert!(!mutex.is_locked()));
    *MutexGuard::map(guard, |pair| &mut pair.0) += 2;
    assert!(!mutex.data_ptr().is_null());
    assert_eq!(*mutex.lock(), (2, 1));
    let shared = Arc::new(Mutex::new(7));
    assert_eq!(*shared.lock_arc(), 7);
    Condvar::new().wait_while(&mut shared.lock(), |value| *value != 7);
    let lock = RwLock::new(0);
    assert!(!lock.is_locked_exclusive() && *lock.read() == 0);
    Once::new().call_once(|| ());
}

/// What a program does not find, and where it is told so.
#[test]
fn what_is_not_here_stands_in_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs/types.md");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    for absent in [
        "upgradable_read",
        "read_recursive",
        "unlock_fair",
        "bump",
        "ReentrantMutex",
        "FairMutex",
        "call_once_force",
        "deadlock",
        "const_mutex",
    ] {
        assert!(text.contains(absent), "{absent}");
    }
}
