//! Stacks for guest flows, cut from large mappings. Only touched pages use memory.
//!
//! **Colored**: the top of stack *i* is moved down by `i * 192 mod 4096` bytes, because page-aligned tops alias in the
//! first-level cache and make switches many times slower.
//! **Overflow is detected**: the lowest page of the first stacks is inaccessible. The engine compares the stack pointer
//! with [`Stack::limit`] whenever a flow waits.
//! **Not reused**: no kernel drops a task's context, so a stack belongs to its flow until the end of the run.

#![expect(unsafe_code, reason = "mapping memory for stacks")]

use core::ptr;

/// Address space per stack. Only touched pages use memory.
const STACK_BYTES: usize = 256 << 10;
/// Room below the limit at which the engine reports an overflow: a guest function may use it between two waits.
const MARGIN_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
const STACKS_PER_MAPPING: usize = 256;
/// Each guard page splits a mapping, and a process may have about 65 thousand mappings.
const GUARDED_STACKS: usize = 8192;
const COLOR_STEP_BYTES: usize = 192;

/// One stack of an arena.
#[derive(Debug)]
pub struct Stack {
    bottom: usize,
    color: usize,
}

impl Stack {
    /// One past the highest usable byte.
    pub fn top(&self) -> usize {
        self.bottom + STACK_BYTES - self.color
    }

    /// A waiting flow's stack pointer must be above this.
    pub fn limit(&self) -> usize {
        self.bottom + MARGIN_BYTES
    }
}

/// An arena of stacks.
#[derive(Debug, Default)]
pub struct Stacks {
    mappings: Vec<*mut u8>,
    made: usize,
}

impl Stacks {
    /// Returns a new stack.
    pub fn take(&mut self) -> Stack {
        let index = self.made % STACKS_PER_MAPPING;
        if index == 0 {
            self.mappings.push(map(STACKS_PER_MAPPING * STACK_BYTES));
        }
        let mapping = *self.mappings.last().expect("just pushed if there was none");
        let stack = Stack {
            bottom: mapping as usize + index * STACK_BYTES,
            color: self.made * COLOR_STEP_BYTES % PAGE_BYTES,
        };
        self.made += 1;
        if self.made <= GUARDED_STACKS {
            // SAFETY: this is the lowest page of a stack that is not in use yet. Losing access to it is the purpose.
            let result = unsafe { libc::mprotect(stack.bottom as *mut _, PAGE_BYTES, libc::PROT_NONE) };
            assert_eq!(result, 0, "cannot protect the guard page of a guest stack");
        }
        stack
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for &mapping in &self.mappings {
            // SAFETY: mapped by `map` with this length, and no flow runs on it any more: the run is over.
            unsafe { libc::munmap(mapping.cast(), STACKS_PER_MAPPING * STACK_BYTES) };
        }
    }
}

fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping wherever the kernel likes touches no memory of ours.
    let mapping = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert!(mapping != libc::MAP_FAILED, "cannot map {bytes} bytes of guest stacks");
    // With huge pages each touched stack would use two megabytes. The advice may be refused: it only saves memory.
    // SAFETY: the mapping was made just now with this length.
    unsafe { libc::madvise(mapping, bytes, libc::MADV_NOHUGEPAGE) };
    mapping.cast()
}
