//! Tells other tools for debugging what a lock orders, which they do not see: ThreadSanitizer, if the program is
//! compiled for it, and valgrind's helgrind and DRD, if it runs in one of them.
//!
//! A release of a lock happens before all later acquisitions of it. That is more than a reader-writer lock promises
//! between two readers, so a race that only two sections of readers have may stay unseen.

use core::ffi::{CStr, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// A function of ThreadSanitizer (`sanitizer/tsan_interface.h`), or null if the program is compiled without it.
struct Function(AtomicPtr<c_void>);

static ACQUIRE: Function = Function(AtomicPtr::new(ptr::null_mut()));
static RELEASE: Function = Function(AtomicPtr::new(ptr::null_mut()));

impl Function {
    fn find(&self, name: &CStr) {
        // SAFETY: `name` ends with 0.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // ORDERING: Relaxed, here and below; it is stored when the library is loaded.
        self.0.store(address, Relaxed);
    }

    fn call(&self, lock: usize) {
        let address = self.0.load(Relaxed);
        if !address.is_null() {
            // SAFETY: the function has this type. It uses the address only.
            let function: unsafe extern "C" fn(*mut c_void) = unsafe { mem::transmute(address) };
            // SAFETY: as above.
            unsafe { function(ptr::without_provenance_mut(lock)) };
        }
    }
}

/// Looks for ThreadSanitizer. Called when the library is loaded.
pub(crate) fn at_load() {
    ACQUIRE.find(c"__tsan_acquire");
    RELEASE.find(c"__tsan_release");
}

/// The calling thread has got `lock`.
pub(crate) fn acquired(lock: usize) {
    ACQUIRE.call(lock);
    // ANNOTATE_HAPPENS_AFTER
    request(0x4847_0122, lock);
}

/// The calling thread is about to release `lock`.
pub(crate) fn releases(lock: usize) {
    RELEASE.call(lock);
    // ANNOTATE_HAPPENS_BEFORE
    request(0x4847_0121, lock);
}

/// Makes a request of a valgrind tool (`valgrind/helgrind.h`). Elsewhere the instructions change nothing.
#[cfg(target_arch = "x86_64")]
fn request(number: usize, lock: usize) {
    let arguments = [number, lock, 0, 0, 0, 0];
    // SAFETY: the rotations add up to 128 bits, and the exchange is of a register with itself. A tool reads the
    // arguments, and writes RDX.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0_usize => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_number: usize, _lock: usize) {}
