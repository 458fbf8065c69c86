//! Keeps this library loaded, because the C library and the kernel keep addresses in it.
//!
//! The C library calls a function of this library when a thread ends, and the kernel reads its descriptors when it
//! interrupts a thread. If the library were part of a plugin that is unloaded, both would access unmapped memory.

#![expect(unsafe_code, reason = "asks the dynamic linker")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// Keeps the object that contains this code loaded from now on. Returns `false` if the dynamic linker cannot do so.
pub(crate) fn keep_loaded() -> bool {
    const UNKNOWN: u8 = 0;
    const KEPT: u8 = 1;
    const NOT_KEPT: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    // ORDERING: Relaxed, both; each thread that finds no answer may keep the object loaded, which does no harm.
    match ANSWER.load(Relaxed) {
        UNKNOWN => {
            // Miri has no dynamic linker.
            let kept = cfg!(miri) || keep((&raw const ANSWER).cast());
            ANSWER.store(if kept { KEPT } else { NOT_KEPT }, Relaxed);
            kept
        }
        answer => answer == KEPT,
    }
}

fn keep(address: *const c_void) -> bool {
    let Some(here) = object(address) else {
        return false;
    };
    // SAFETY: no memory is passed. The program's headers are part of the program.
    let program = object(unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void);
    if program.is_some_and(|program| program.dli_fbase == here.dli_fbase) {
        return true;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the argument is the name of a loaded object, which ends with 0. By RTLD_NOLOAD nothing is loaded, so no
    // constructor runs.
    let handle = unsafe { libc::dlopen(here.dli_fname, flags) };
    !handle.is_null()
}

/// Returns the loaded object that contains `address`.
fn object(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: the dynamic linker accepts any address, and `info` is a local variable.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: the result is not 0, so `info` has been written.
    (found != 0).then(|| unsafe { info.assume_init() })
}
