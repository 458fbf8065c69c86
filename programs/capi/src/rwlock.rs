//! The functions of `holdfast_rwlock_t`, the reader-writer lock.

use lock_api::{RawRwLock as _, RawRwLockDowngrade, RawRwLockTimed};

use crate::before;
use crate::kinds::RawRwLock;

/// The reader-writer lock, `holdfast_rwlock_t` in C.
#[derive(Debug)]
#[repr(transparent)]
pub struct RwLock(RawRwLock);

const _: () = assert!(size_of::<RwLock>() == 8 && align_of::<RwLock>() == 4);

/// Initializes an unlocked lock.
///
/// # Safety
/// `lock` must point to 8 bytes, aligned to 4, that only this call accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_init(lock: *mut RwLock) {
    // SAFETY: the caller promises that only this call accesses the memory.
    unsafe { lock.write(RwLock(RawRwLock::INIT)) };
}

/// Makes the writer a reader: no other writer gets the lock in between.
///
/// # Safety
/// `lock` must point to a lock that the calling thread holds as the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_downgrade(lock: *const RwLock) {
    // SAFETY: the caller promises that it is a lock. Other threads access it only through this library, atomically.
    let lock = unsafe { &*lock };
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { lock.0.downgrade() };
}

/// Waits until the calling thread holds the lock together with other readers.
///
/// # Safety
/// `lock` must point to a lock, whose memory must stay valid until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_rdlock(lock: *const RwLock) {
    // SAFETY: the caller promises that it is a lock. Other threads access it only through this library, atomically.
    let lock = unsafe { &*lock };
    lock.0.lock_shared();
}

/// Takes the lock together with other readers, if that needs no waiting. Returns whether it was taken.
///
/// # Safety
/// As for [`holdfast_rwlock_rdlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_tryrdlock(lock: *const RwLock) -> bool {
    // SAFETY: as in `holdfast_rwlock_rdlock`.
    let lock = unsafe { &*lock };
    lock.0.try_lock_shared()
}

/// Waits until the calling thread holds the lock together with other readers, for at most until `deadline` of
/// CLOCK_MONOTONIC. Returns whether it was taken.
///
/// # Safety
/// As for [`holdfast_rwlock_rdlock`]. `deadline` must point to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_timedrdlock(lock: *const RwLock, deadline: *const libc::timespec) -> bool {
    // SAFETY: as in `holdfast_rwlock_rdlock`.
    let lock = unsafe { &*lock };
    let until = |deadline: Option<_>| match deadline {
        Some(deadline) => lock.0.try_lock_shared_until(deadline),
        None => {
            lock.0.lock_shared();
            true
        }
    };
    // SAFETY: the caller promises that it is a time.
    unsafe { before(deadline, || lock.0.try_lock_shared(), until) }
}

/// Releases the lock, which the calling thread holds together with other readers.
///
/// # Safety
/// `lock` must point to a lock that the calling thread holds so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_rdunlock(lock: *const RwLock) {
    // SAFETY: as in `holdfast_rwlock_rdlock`. The memory is not accessed once the lock is released.
    let lock = unsafe { &*lock };
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { lock.0.unlock_shared() };
}

/// Waits until the calling thread holds the lock alone, as the writer.
///
/// # Safety
/// `lock` must point to a lock, whose memory must stay valid until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_wrlock(lock: *const RwLock) {
    // SAFETY: the caller promises that it is a lock. Other threads access it only through this library, atomically.
    let lock = unsafe { &*lock };
    lock.0.lock_exclusive();
}

/// Takes the lock alone, as the writer, if that needs no waiting. Returns whether it was taken.
///
/// # Safety
/// As for [`holdfast_rwlock_wrlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_trywrlock(lock: *const RwLock) -> bool {
    // SAFETY: as in `holdfast_rwlock_wrlock`.
    let lock = unsafe { &*lock };
    lock.0.try_lock_exclusive()
}

/// Waits until the calling thread holds the lock alone, as the writer, for at most until `deadline` of
/// CLOCK_MONOTONIC. Returns whether it was taken.
///
/// # Safety
/// As for [`holdfast_rwlock_wrlock`]. `deadline` must point to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_timedwrlock(lock: *const RwLock, deadline: *const libc::timespec) -> bool {
    // SAFETY: as in `holdfast_rwlock_wrlock`.
    let lock = unsafe { &*lock };
    let until = |deadline: Option<_>| match deadline {
        Some(deadline) => lock.0.try_lock_exclusive_until(deadline),
        None => {
            lock.0.lock_exclusive();
            true
        }
    };
    // SAFETY: the caller promises that it is a time.
    unsafe { before(deadline, || lock.0.try_lock_exclusive(), until) }
}

/// Releases the lock, which the calling thread holds alone, as the writer.
///
/// # Safety
/// `lock` must point to a lock that the calling thread holds so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rwlock_wrunlock(lock: *const RwLock) {
    // SAFETY: as in `holdfast_rwlock_wrlock`. The memory is not accessed once the lock is released.
    let lock = unsafe { &*lock };
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { lock.0.unlock_exclusive() };
}
