//! Links the embeddable rooms without the standard library.
//!
//! The panic handler below is the proof: the standard library has one too, and a program must not have two. If any of these
//! crates, or any of their dependencies, links `std`, this one does not compile ("found duplicate lang item `panic_impl`"),
//! on any target, with the stable compiler.
#![no_std]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

pub use {holdfast_abi, holdfast_guest, holdfast_host, holdfast_locks, holdfast_workloads};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Never has memory: nothing here runs.
struct Empty;

// SAFETY: null says that there is no memory, and so nothing is ever given back.
unsafe impl GlobalAlloc for Empty {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Empty = Empty;
