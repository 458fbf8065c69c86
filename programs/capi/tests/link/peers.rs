//! The mutexes of std and parking_lot for `circumstances.c`, which compares. There is one of each.

#![expect(unsafe_code, reason = "functions that C calls; locks without guards")]

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

use parking_lot::lock_api::{GuardNoSend, RawMutex as _};

/// The guard of a mutex of std, which cannot be unlocked without.
struct Held(Cell<Option<MutexGuard<'static, ()>>>);

// SAFETY: only the thread that holds the mutex accesses the guard.
unsafe impl Sync for Held {}

static STD: Mutex<()> = Mutex::new(());
static HELD: Held = Held(Cell::new(None));
static PARKING_LOT: parking_lot::RawMutex = parking_lot::RawMutex::INIT;

/// Locks the mutex of std.
#[unsafe(no_mangle)]
pub extern "C" fn std_acquire() {
    HELD.0.set(STD.lock().ok());
}

/// Tries to lock the mutex of std.
#[unsafe(no_mangle)]
pub extern "C" fn std_try_acquire() -> bool {
    STD.try_lock().is_ok_and(|guard| {
        HELD.0.set(Some(guard));
        true
    })
}

/// Unlocks the mutex of std, which the caller holds.
#[unsafe(no_mangle)]
pub extern "C" fn std_release() {
    drop(HELD.0.take());
}

/// Locks the mutex of parking_lot.
#[unsafe(no_mangle)]
pub extern "C" fn parking_lot_acquire() {
    let _marker = PARKING_LOT.lock();
}

/// Tries to lock the mutex of parking_lot.
#[unsafe(no_mangle)]
pub extern "C" fn parking_lot_try_acquire() -> bool {
    PARKING_LOT.try_lock().is_some()
}

/// Unlocks the mutex of parking_lot.
#[unsafe(no_mangle)]
pub extern "C" fn parking_lot_release() {
    // SAFETY: the caller holds it.
    unsafe { PARKING_LOT.unlock(GuardNoSend::new()) };
}
