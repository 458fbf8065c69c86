//! A plugin in Rust, which contains a copy of the code of the locks.

#![expect(unsafe_code, reason = "functions that another object calls by name")]

use holdfast_threads::{RawBiasedRwLock, RawHybrid};
use lock_api::{RawMutex, RawRwLock};

/// Takes a lock, or releases one that the calling thread holds.
#[unsafe(no_mangle)]
pub extern "C" fn use_lock(lock: &RawHybrid, takes: bool) {
    if takes {
        lock.lock();
    } else {
        // SAFETY: the caller holds it.
        unsafe { lock.unlock() };
    }
}

/// As [`use_lock`], for a reader.
#[unsafe(no_mangle)]
pub extern "C" fn use_shared(lock: &RawBiasedRwLock, takes: bool) {
    if takes {
        lock.lock_shared();
    } else {
        // SAFETY: the caller holds it.
        unsafe { lock.unlock_shared() };
    }
}

/// As [`use_lock`], for a writer.
#[unsafe(no_mangle)]
pub extern "C" fn use_exclusive(lock: &RawBiasedRwLock, takes: bool) {
    if takes {
        lock.lock_exclusive();
    } else {
        // SAFETY: the caller holds it.
        unsafe { lock.unlock_exclusive() };
    }
}
