//! The functions of `holdfast_lock_t`, the lock.

use lock_api::{RawMutex, RawMutexTimed};

use crate::before;
use crate::kinds::RawLock;

/// The lock, `holdfast_lock_t` in C.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lock(pub(crate) RawLock);

const _: () = assert!(size_of::<Lock>() == 4 && align_of::<Lock>() == 4);

/// Initializes an unlocked lock.
///
/// # Safety
/// `lock` must point to 4 bytes, aligned to 4, that only this call accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_init(lock: *mut Lock) {
    // SAFETY: the caller promises that only this call accesses the memory.
    unsafe { lock.write(Lock(RawLock::INIT)) };
}

/// Waits until the calling thread holds the lock.
///
/// # Safety
/// `lock` must point to a lock, whose memory must stay valid until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_lock(lock: *const Lock) {
    // SAFETY: the caller promises that it is a lock. Other threads access it only through this library, atomically.
    let lock = unsafe { &*lock };
    lock.0.lock();
}

/// Takes the lock if that needs no waiting. Returns whether the lock was taken.
///
/// # Safety
/// As for [`holdfast_lock_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_trylock(lock: *const Lock) -> bool {
    // SAFETY: as in `holdfast_lock_lock`.
    let lock = unsafe { &*lock };
    lock.0.try_lock()
}

/// Waits for the lock until `deadline` of CLOCK_MONOTONIC at the latest. Returns whether the lock was taken.
///
/// # Safety
/// As for [`holdfast_lock_lock`]. `deadline` must point to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lock_timedlock(lock: *const Lock, deadline: *const libc::timespec) -> bool {
    // SAFETY: as in `holdfast_lock_lock`.
    let lock = unsafe { &*lock };
    let until = |deadline: Option<_>| match deadline {
        Some(deadline) => lock.0.try_lock_until(deadline),
        None => {
            lock.0.lock();
            true
        }
    };
    // SAFETY: the caller promises that it is a time.
    unsafe { before(deadline, || lock.0.try_lock(), until) }
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
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { lock.0.unlock() };
}
