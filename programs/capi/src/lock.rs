//! The functions of `holdfast_lock_t`, the lock.

use lock_api::{RawMutex, RawMutexTimed};

use crate::check::{self, Access};
use crate::kinds::RawLock;
use crate::ways::way;
use crate::{before, taken};

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
    check::initializes("holdfast_lock_init", lock);
    // SAFETY: the caller promises that only this call accesses the memory.
    unsafe { lock.write(Lock(RawLock::INIT)) };
}

way!(
    Lock, "", (Access::Lock):
    holdfast_lock_lock = lock,
    holdfast_lock_trylock = try_lock,
    holdfast_lock_timedlock = try_lock_until,
    holdfast_lock_unlock = unlock
);
