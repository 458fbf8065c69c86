//! The functions of `holdfast_rwlock_t`, the reader-writer lock.

use lock_api::{RawRwLock as _, RawRwLockDowngrade, RawRwLockTimed};

use crate::check::{self, Access};
use crate::kinds::RawRwLock;
use crate::ways::way;
use crate::{before, taken};

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
    check::initializes("holdfast_rwlock_init", lock);
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
    check::downgrades("holdfast_rwlock_downgrade", lock);
    // SAFETY: the caller promises that the calling thread holds it.
    unsafe { lock.0.downgrade() };
}

way!(
    RwLock, " together with other readers", (Access::Read):
    holdfast_rwlock_rdlock = lock_shared,
    holdfast_rwlock_tryrdlock = try_lock_shared,
    holdfast_rwlock_timedrdlock = try_lock_shared_until,
    holdfast_rwlock_rdunlock = unlock_shared
);
way!(
    RwLock, " alone, as the writer", (Access::Write):
    holdfast_rwlock_wrlock = lock_exclusive,
    holdfast_rwlock_trywrlock = try_lock_exclusive,
    holdfast_rwlock_timedwrlock = try_lock_exclusive_until,
    holdfast_rwlock_wrunlock = unlock_exclusive
);
