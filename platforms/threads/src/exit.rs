//! Gives back a thread's CPU number when the thread ends.

#![expect(unsafe_code, reason = "thread-specific data of the C library")]

use std::ffi::c_void;
use std::sync::OnceLock;

use holdfast_locks::CpuId;

use crate::{loaded, slot};

/// Arranges that [`slot::give_back`] is called when the calling thread ends. Only the last call of a thread counts.
pub(crate) fn give_back_at_exit(cpu: CpuId) {
    // Never a null pointer: those have no destructor.
    let value = (cpu.0 as usize + 1) as *const c_void;
    // SAFETY: `key` was made below and is never deleted.
    let error = unsafe { libc::pthread_setspecific(key(), value) };
    assert_eq!(
        error, 0,
        "cannot store CPU number {} for this thread: out of memory",
        cpu.0
    );
}

fn key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        // The result is not needed: without dynamic loading the code cannot be unloaded either.
        loaded::keep_loaded();
        let mut key = 0;
        // SAFETY: `key` is a local variable, and `at_exit` has the type of a destructor.
        let error = unsafe { libc::pthread_key_create(&mut key, Some(at_exit)) };
        assert_eq!(
            error, 0,
            "cannot register a destructor for ending threads: all thread-specific keys are in use"
        );
        key
    })
}

extern "C" fn at_exit(value: *mut c_void) {
    slot::give_back(CpuId(value as u32 - 1));
}
