//! What is done once, when the code is loaded: everything that needs the dynamic linker, or memory of the C library.
//!
//! **No call looks**: a lock may guard the allocator, or be taken where the dynamic linker holds its own lock. So no
//! lock, wait or unlock allocates, opens a file or asks the dynamic linker. What was not done when the code was loaded
//! (another library's constructor locks earlier) is done without until then: unlocks are exchanges.
//!
//! **Stays loaded**: the C library calls a function of this library when a thread ends, and the kernel reads its
//! descriptors when it interrupts a thread. If the library were part of a plugin that is unloaded, both would access
//! unmapped memory. A library that is linked with `-z nodelete` needs nothing. Any other is kept loaded by `dlopen(3)`
//! of itself, within the `dlopen` that loads it. A copy that uses the state of another one needs neither.

#![expect(
    unsafe_code,
    reason = "asks the dynamic linker, and reads the headers that it has mapped"
)]
#![cfg_attr(
    any(miri, holdfast_atomics, not(target_arch = "x86_64")),
    allow(
        dead_code,
        reason = "Miri runs no constructors, and words without parts need nothing that is found here"
    )
)]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{allowed, exit, fork, process, word};

/// Calls [`at_load`] when the code is loaded, before constructors without a priority.
// SAFETY: the section holds addresses of functions without arguments, and this is one.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let own = process::meet();
    if own {
        fork::register();
        let address = (&raw const STAYS_LOADED).cast();
        // ORDERING: Relaxed; published by what is found next.
        STAYS_LOADED.store(keep_loaded(address), Relaxed);
        exit::key();
    }
    allowed::cpus();
    word::look(own);
    // ORDERING: Release; pairs with the Acquire in `is_done`.
    DONE.store(true, Release);
}

static STAYS_LOADED: AtomicBool = AtomicBool::new(false);

static DONE: AtomicBool = AtomicBool::new(false);

/// Returns whether all that is done when the code is loaded has been done.
pub(crate) fn is_done() -> bool {
    // ORDERING: Acquire; pairs with the Release in `at_load`.
    DONE.load(Acquire)
}

/// Returns whether the object that contains this code is known to stay loaded.
pub(crate) fn stays_loaded() -> bool {
    // ORDERING: Relaxed; what was known too late is done without.
    STAYS_LOADED.load(Relaxed)
}

/// Keeps the object that contains `address` loaded. Returns `false` if the dynamic linker cannot do so.
fn keep_loaded(address: *const c_void) -> bool {
    let Some(here) = object(address) else {
        return false;
    };
    // SAFETY: no memory is passed. The program's headers are part of the program.
    let program = object(unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void);
    if program.is_some_and(|program| program.dli_fbase == here.dli_fbase) {
        return true;
    }
    // SAFETY: the dynamic linker has mapped the object at this address, and this code belongs to it.
    if unsafe { is_never_unloaded(here.dli_fbase) } {
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

#[cfg(target_pointer_width = "32")]
use libc::{Elf32_Ehdr as Header, Elf32_Phdr as Segment};
#[cfg(target_pointer_width = "64")]
use libc::{Elf64_Ehdr as Header, Elf64_Phdr as Segment};

/// Returns whether the shared library at `base` was linked with `-z nodelete` (System V ABI, "Dynamic Section").
///
/// # Safety
/// A shared library must be mapped at `base`, whose first segment begins with its headers at address 0, as linkers
/// arrange it. It must stay mapped during the call.
unsafe fn is_never_unloaded(base: *const c_void) -> bool {
    /// An entry of the dynamic section: what it is, and its value.
    type Dynamic = [usize; 2];
    const END: usize = 0;
    const FLAGS_1: usize = 0x6fff_fffb;
    const NO_DELETE: usize = 8;
    // SAFETY: the mapping begins with the header.
    let header = unsafe { &*base.cast::<Header>() };
    let segments = base.wrapping_byte_add(header.e_phoff as usize).cast::<Segment>();
    for index in 0..usize::from(header.e_phnum) {
        // SAFETY: the header says where its segments are listed, and how many there are.
        let segment = unsafe { &*segments.wrapping_add(index) };
        if segment.p_type != libc::PT_DYNAMIC {
            continue;
        }
        let mut entry = base.wrapping_byte_add(segment.p_vaddr as usize).cast::<Dynamic>();
        loop {
            // SAFETY: the list is mapped, and goes on up to the entry `END`.
            match unsafe { entry.read() } {
                [END, _] => return false,
                [FLAGS_1, flags] => return flags & NO_DELETE != 0,
                _ => entry = entry.wrapping_add(1),
            }
        }
    }
    false
}
