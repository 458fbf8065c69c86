//! Gives back a thread's CPU number when the thread ends.

#![expect(unsafe_code, reason = "thread-specific data of the C library")]

use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::ffi::c_void;

use holdfast_locks::CpuId;

use crate::slot;

/// The number of keys for whose values glibc has room in each thread (`PTHREAD_KEY_2NDLEVEL_SIZE`). It allocates the
/// first value of a later key, which a waiter must not do.
const KEYS_WITH_ROOM: libc::pthread_key_t = if cfg!(target_env = "gnu") {
    32
} else {
    libc::pthread_key_t::MAX
};

/// Arranges that [`slot::give_back`] is called when the calling thread ends. Only the last call of a thread counts.
/// Returns `false` if the C library has no room for that.
pub(crate) fn give_back_at_exit(cpu: CpuId) -> bool {
    // Never a null pointer: those have no destructor.
    let value = ptr::without_provenance::<c_void>(cpu.0 as usize + 1);
    // SAFETY: the key was made below and is never deleted.
    key().is_some_and(|key| key < KEYS_WITH_ROOM && unsafe { libc::pthread_setspecific(key, value) } == 0)
}

/// Returns the key of the destructor. It is made once, when the code is loaded: few keys are in use then. A child of a
/// process that forks meanwhile makes its own, since no thread waits for another one here.
pub(crate) fn key() -> Option<libc::pthread_key_t> {
    /// The key + 1, or 0 if there is none yet.
    static KEY: AtomicU64 = AtomicU64::new(0);
    // ORDERING: Acquire, here and below; pairs with the Release of the thread that made the key.
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        return Some(key as libc::pthread_key_t);
    }
    let mut made = 0;
    // SAFETY: `made` is a local variable, and `at_exit` has the type of a destructor.
    if unsafe { libc::pthread_key_create(&mut made, Some(at_exit)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, u64::from(made) + 1, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: the key was made above and is not in use.
            unsafe { libc::pthread_key_delete(made) };
            Some((other - 1) as libc::pthread_key_t)
        }
    }
}

extern "C" fn at_exit(value: *mut c_void) {
    slot::give_back(CpuId(value.addr() as u32 - 1));
}
