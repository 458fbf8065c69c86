//! Gives a thread's number back when the thread ends.

#![expect(unsafe_code, reason = "thread-specific data of the C library")]

use std::ffi::c_void;
use std::sync::OnceLock;

use holdfast_locks::CpuId;

use crate::{loaded, slot};

/// Has [`slot::give_back`] called when the calling thread ends. Only the last call of a thread counts.
pub(crate) fn give_back_at_exit(cpu: CpuId) {
    // Never a null pointer: those have no destructor.
    let value = (cpu.0 as usize + 1) as *const c_void;
    // SAFETY: `key` was made below and is never deleted.
    let error = unsafe { libc::pthread_setspecific(key(), value) };
    assert_eq!(error, 0, "cannot note CPU {} as this thread's: out of memory", cpu.0);
}

fn key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        // If it cannot be promised, as where nothing is loaded dynamically, there is nothing else to be done either.
        loaded::keep_loaded();
        let mut key = 0;
        // SAFETY: `key` is ours to write, and `at_exit` has the type that is asked for.
        let error = unsafe { libc::pthread_key_create(&mut key, Some(at_exit)) };
        assert_eq!(
            error, 0,
            "cannot learn when threads end: all thread-specific keys are in use"
        );
        key
    })
}

extern "C" fn at_exit(value: *mut c_void) {
    slot::give_back(CpuId(value as u32 - 1));
}
