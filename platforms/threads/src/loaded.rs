//! Code that others look at or call later stays loaded.
//!
//! The C library calls a function of ours when a thread ends, and the kernel reads descriptors of ours when it interrupts one.
//! If this is part of a plugin, and the plugin is unloaded, both would find nothing there.

#![expect(unsafe_code, reason = "asks the dynamic linker")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

/// From now on, the object that this code is in is not unloaded. False: the dynamic linker does not promise it.
pub(crate) fn keep_loaded() -> bool {
    static KEPT: OnceLock<bool> = OnceLock::new();
    *KEPT.get_or_init(|| {
        if cfg!(miri) {
            // Has no dynamic linker.
            return true;
        }
        let Some(here) = object((&raw const KEPT).cast()) else {
            return false;
        };
        // SAFETY: no memory is passed. The program's headers are part of the program.
        let program = object(unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void);
        if program.is_some_and(|program| program.dli_fbase == here.dli_fbase) {
            return true;
        }
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the name of a loaded object, which ends with 0. Nothing is loaded, so nothing runs.
        let handle = unsafe { libc::dlopen(here.dli_fname, flags) };
        !handle.is_null()
    })
}

/// The loaded object that `address` is in.
fn object(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: the dynamic linker takes any address; `info` is ours to write.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: not 0, so it has been written.
    (found != 0).then(|| unsafe { info.assume_init() })
}
