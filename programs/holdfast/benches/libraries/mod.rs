//! The locks of each library, around a number.

use std::convert::identity;

use holdfast_peers::absl;

/// Mutexes around a number.
pub trait Mutexes {
    type Mutex: Sync;

    fn mutex() -> Self::Mutex;
    fn with<R>(mutex: &Self::Mutex, section: impl FnOnce(&mut u64) -> R) -> R;
}

/// Condition variables.
pub trait Conditions: Mutexes {
    type Condvar: Sync;

    fn condvar() -> Self::Condvar;
    /// Waits while `condition` holds, then changes the number.
    fn wait(
        mutex: &Self::Mutex,
        changed: &Self::Condvar,
        condition: impl FnMut(&mut u64) -> bool,
        change: impl FnOnce(&mut u64),
    );
    fn notify_one(changed: &Self::Condvar);
    fn notify_all(changed: &Self::Condvar);
}

/// Reader-writer locks.
pub trait RwLocks {
    type RwLock: Sync;

    fn rwlock() -> Self::RwLock;
    fn read<R>(lock: &Self::RwLock, section: impl FnOnce(&u64) -> R) -> R;
    fn write<R>(lock: &Self::RwLock, section: impl FnOnce(&mut u64) -> R) -> R;
}

/// Code that runs once.
pub trait Onces {
    type Once: Sync;

    fn once() -> Self::Once;
    fn call_once(once: &Self::Once);
}

pub struct Std;
pub struct ParkingLot;
/// Abseil, if it is installed.
pub struct Absl;
pub struct Holdfast;
/// Reader-writer locks with a bias.
pub struct Biased;

/// Implements [`Mutexes`] and [`Conditions`]. `$guard` makes a guard of what `lock` returns.
macro_rules! mutexes {
    ($name:ident: $mutex:ty, $condvar:ty, $guard:path, $wait:expr) => {
        impl Mutexes for $name {
            type Mutex = $mutex;

            fn mutex() -> Self::Mutex {
                <$mutex>::new(0)
            }
            #[inline]
            fn with<R>(mutex: &Self::Mutex, section: impl FnOnce(&mut u64) -> R) -> R {
                let mut guard = $guard(mutex.lock());
                section(&mut guard)
            }
        }

        impl Conditions for $name {
            type Condvar = $condvar;

            fn condvar() -> Self::Condvar {
                <$condvar>::new()
            }
            fn wait(
                mutex: &Self::Mutex,
                changed: &Self::Condvar,
                mut condition: impl FnMut(&mut u64) -> bool,
                change: impl FnOnce(&mut u64),
            ) {
                let mut number = $guard(mutex.lock());
                while condition(&mut number) {
                    number = $wait(changed, number);
                }
                change(&mut number);
            }
            fn notify_one(changed: &Self::Condvar) {
                changed.notify_one();
            }
            fn notify_all(changed: &Self::Condvar) {
                changed.notify_all();
            }
        }
    };
}

/// Implements [`RwLocks`]. `$guard` makes a guard of what `read` and `write` return.
macro_rules! rwlocks {
    ($name:ident: $rwlock:ty, $guard:path) => {
        impl RwLocks for $name {
            type RwLock = $rwlock;

            fn rwlock() -> Self::RwLock {
                <$rwlock>::new(0)
            }
            #[inline]
            fn read<R>(lock: &Self::RwLock, section: impl FnOnce(&u64) -> R) -> R {
                let guard = $guard(lock.read());
                section(&guard)
            }
            #[inline]
            fn write<R>(lock: &Self::RwLock, section: impl FnOnce(&mut u64) -> R) -> R {
                let mut guard = $guard(lock.write());
                section(&mut guard)
            }
        }
    };
}

/// Implements [`Onces`].
macro_rules! onces {
    ($name:ident: $once:ty) => {
        impl Onces for $name {
            type Once = $once;

            fn once() -> Self::Once {
                <$once>::new()
            }
            #[inline]
            fn call_once(once: &Self::Once) {
                once.call_once(|| ());
            }
        }
    };
}

fn unpoisoned<G>(guard: std::sync::LockResult<G>) -> G {
    guard.expect("no section panics")
}

/// Makes a function that waits with a guard of one that takes its address.
macro_rules! by_address {
    ($condvar:ty) => {
        |changed: &$condvar, mut number| {
            changed.wait(&mut number);
            number
        }
    };
}

mutexes!(Std: std::sync::Mutex<u64>, std::sync::Condvar, unpoisoned, |changed: &std::sync::Condvar, number| {
    unpoisoned(changed.wait(number))
});
mutexes!(ParkingLot: parking_lot::Mutex<u64>, parking_lot::Condvar, identity, by_address!(parking_lot::Condvar));
mutexes!(Absl: lock_api_05::Mutex<absl::Mutex, u64>, absl::Condvar, identity, by_address!(absl::Condvar));
mutexes!(Holdfast: holdfast::Mutex<u64>, holdfast::Condvar, identity, by_address!(holdfast::Condvar));

rwlocks!(Std: std::sync::RwLock<u64>, unpoisoned);
rwlocks!(ParkingLot: parking_lot::RwLock<u64>, identity);
rwlocks!(Absl: lock_api_05::RwLock<absl::Mutex, u64>, identity);
rwlocks!(Holdfast: holdfast::RwLock<u64>, identity);
rwlocks!(Biased: holdfast::BiasedRwLock<u64>, identity);

onces!(Std: std::sync::Once);
onces!(ParkingLot: parking_lot::Once);
onces!(Holdfast: holdfast::Once);
