//! Gives back a thread's CPU number when the thread ends.

#![expect(unsafe_code, reason = "thread-specific data of the C library")]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::ffi::c_void;

use holdfast_locks::CpuId;

use crate::{loaded, slot};

/// Arranges that [`slot::give_back`] is called when the calling thread ends. Only the last call of a thread counts.
/// Returns `false` if the C library has no room for that.
pub(crate) fn give_back_at_exit(cpu: CpuId) -> bool {
    // Never a null pointer: those have no destructor.
    let value = (cpu.0 as usize + 1) as *const c_void;
    // SAFETY: the key was made below and is never deleted.
    key().is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
}

/// Returns the key of the destructor, which is made once. A child of a process that forks meanwhile makes its own: no
/// thread waits for another one here.
pub(crate) fn key() -> Option<libc::pthread_key_t> {
    /// The key + 1, or 0 if there is none yet.
    static KEY: AtomicU64 = AtomicU64::new(0);
    // ORDERING: Acquire, here and below; pairs with the Release of the thread that made the key.
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        return Some(key as libc::pthread_key_t);
    }
    // The result is not needed: without dynamic loading the code cannot be unloaded either.
    loaded::keep_loaded();
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
    slot::give_back(CpuId(value as u32 - 1));
}
