//! The heap: blocks of powers of two, freed ones kept by the CPU that frees them.
//!
//! No lock, so that a preempted vCPU never holds one: fresh memory comes off a pointer that all advance, and a CPU's lists of
//! free blocks are its own, with interrupts masked. A block that one CPU frees always is taken by that CPU; memory so moves
//! between CPUs and never back, which programs that run for seconds can afford. Nothing is ever split or merged.

#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::instructions::{cli, interrupts_enabled, sti};
use crate::percpu;

/// The smallest block: 2^4 bytes.
const SMALLEST: u32 = 4;
const CLASSES: usize = 40;

/// First free byte, and one past the last.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Free blocks of one CPU, by size.
#[derive(Debug)]
pub(crate) struct FreeLists([Cell<*mut u8>; CLASSES]);

impl FreeLists {
    pub(crate) const fn new() -> FreeLists {
        FreeLists([const { Cell::new(ptr::null_mut()) }; CLASSES])
    }
}

/// Makes `start..end` the heap. On CPU 0, before anything is allocated.
///
/// # Safety
/// That memory is mapped, and nobody else's.
pub(crate) unsafe fn begin(start: usize, end: usize) {
    // ORDERING: Relaxed; other CPUs acquire the shared state that is published after this.
    NEXT.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// The allocator.
#[derive(Debug)]
pub struct Heap;

fn class(layout: Layout) -> usize {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST).next_power_of_two();
    (bytes.trailing_zeros() - SMALLEST) as usize
}

fn bytes(class: usize) -> usize {
    1 << (class as u32 + SMALLEST)
}

/// Fresh memory for a block, aligned to its size, but to a page at most.
fn fresh(class: usize, align: usize) -> *mut u8 {
    let (bytes, align) = (bytes(class), align.max(bytes(class).min(4096)));
    // ORDERING: Relaxed, both; the pointer is all that is shared, and memory behind it is untouched.
    let taken = NEXT.fetch_update(Relaxed, Relaxed, |next| {
        let start = next.next_multiple_of(align);
        (start.saturating_add(bytes) <= END.load(Relaxed)).then(|| start + bytes)
    });
    match taken {
        // The same arithmetic as above, on the same value.
        Ok(before) => ptr::with_exposed_provenance_mut(before.next_multiple_of(align)),
        Err(_) => ptr::null_mut(),
    }
}

fn masked<R>(body: impl FnOnce() -> R) -> R {
    let enabled = interrupts_enabled();
    cli();
    let result = body();
    if enabled {
        sti();
    }
    result
}

// SAFETY: a block is in use by one allocation at a time: fresh ones come off an atomic pointer, free ones off a list that
// only one CPU uses, with interrupts masked. Sizes and alignments are at least what was asked for: a block is aligned to its
// size up to a page, and to more where the layout says so, in which case its class is as large as that alignment.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        if class >= CLASSES {
            return ptr::null_mut();
        }
        masked(|| {
            let list = &percpu::this().free.0[class];
            let head = list.get();
            if head.is_null() || !head.addr().is_multiple_of(layout.align()) {
                return fresh(class, layout.align());
            }
            // SAFETY: a free block's first word is the link that `dealloc` wrote.
            list.set(unsafe { head.cast::<*mut u8>().read() });
            head
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        masked(|| {
            let list = &percpu::this().free.0[class(layout)];
            // SAFETY: the block is ours again, at least 16 bytes, aligned to 16.
            unsafe { block.cast::<*mut u8>().write(list.get()) };
            list.set(block);
        });
    }
}
