//! What `include/holdfast.h` declares.
//!
//! The lock is [`HybridPvQspin`]: threads outnumber their CPUs sooner or later, and no other kind bears it. A choice of kinds at
//! initialisation would cost a branch in each operation, and room in the word that the queue needs.
//!
//! **No unwinding**: an `extern "C"` function that panics ends the process.

#![expect(unsafe_code, reason = "functions that C calls, on memory that C owns")]

use holdfast_locks::{HybridPvQspin, RawLock};
use holdfast_threads::{ThisThread, ThreadWord};

/// `holdfast_lock_t`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lock(ThreadWord);

const _: () = assert!(size_of::<Lock>() == 4 && align_of::<Lock>() == 4);

/// Makes a free lock.
///
/// # Safety
/// `lock` points to 4 bytes, aligned to 4, that are this call's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_init(lock: *mut Lock) {
    // SAFETY: the caller's promise.
    unsafe { lock.write(Lock(ThreadWord::ZERO)) };
}

/// Waits until the calling thread holds the lock.
///
/// # Safety
/// `lock` points to a lock, which stays one for the call's duration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_lock(lock: *const Lock) {
    // SAFETY: the caller's promise. Others only access it as this library does, atomically.
    let lock = unsafe { &*lock };
    <HybridPvQspin>::lock(&ThisThread::new(), &lock.0);
}

/// Takes the lock if that needs no waiting.
///
/// # Safety
/// As for [`holdfast_lock_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_trylock(lock: *const Lock) -> bool {
    // SAFETY: as in `holdfast_lock_lock`.
    let lock = unsafe { &*lock };
    <HybridPvQspin>::try_lock(&ThisThread::new(), &lock.0)
}

/// Releases the lock.
///
/// # Safety
/// `lock` points to a lock that the calling thread holds: it stays one until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_unlock(lock: *const Lock) {
    // SAFETY: as in `holdfast_lock_lock`. Once released it may be gone, and is not used any more: **Word untouched after
    // release**. (A reference to a type with interior mutability may outlive its memory.)
    let lock = unsafe { &*lock };
    <HybridPvQspin>::unlock(&ThisThread::new(), &lock.0);
}
