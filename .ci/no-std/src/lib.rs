//! Links the embeddable crates without the standard library.
//!
//! The panic handler below is the proof. The standard library has one too, and a program can have only one. If one of
//! these crates or of their dependencies links `std`, this crate does not compile ("found duplicate lang item
//! `panic_impl`"). That holds on any target with the stable compiler.
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

/// An allocator without memory. Nothing here is ever executed.
struct Empty;

// SAFETY: `alloc` returns null, which reports that there is no memory. So there is never a block to deallocate.
unsafe impl GlobalAlloc for Empty {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Empty = Empty;
