//! The functions that `include/holdfast.h` declares.
//!
//! The lock is [`HybridPvQspin`]: of all kinds it alone stays fast when threads outnumber CPUs. A choice of kinds at
//! initialization would cost a branch in each operation and bits of the word, which the queue needs.
//!
//! **No unwinding**: a panic in an `extern "C"` function aborts the process.

#![expect(unsafe_code, reason = "functions that C calls, on memory that C owns")]

use holdfast_locks::{HybridPvQspin, RawLock};
use holdfast_threads::{ThisThread, ThreadWord};

/// The lock, `holdfast_lock_t` in C.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lock(ThreadWord);

const _: () = assert!(size_of::<Lock>() == 4 && align_of::<Lock>() == 4);

/// Initializes an unlocked lock.
///
/// # Safety
/// `lock` must point to 4 bytes, aligned to 4, that only this call accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_init(lock: *mut Lock) {
    // SAFETY: the caller promises that only this call accesses the memory.
    unsafe { lock.write(Lock(ThreadWord::ZERO)) };
}

/// Waits until the calling thread holds the lock.
///
/// # Safety
/// `lock` must point to a lock, whose memory must stay valid until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_lock(lock: *const Lock) {
    // SAFETY: the caller promises that it is a lock. Other threads access it only through this library, atomically.
    let lock = unsafe { &*lock };
    <HybridPvQspin>::lock(&ThisThread::new(), &lock.0);
}

/// Takes the lock if that needs no waiting. Returns whether the lock was taken.
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
/// `lock` must point to a lock that the calling thread holds. Its memory must stay valid until the lock is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_unlock(lock: *const Lock) {
    // SAFETY: as in `holdfast_lock_lock`. Once the lock is released its memory may be freed, and is not accessed any
    // more: **Word untouched after release**. (A reference to a type with interior mutability may outlive its memory.)
    let lock = unsafe { &*lock };
    <HybridPvQspin>::unlock(&ThisThread::new(), &lock.0);
}
