//! The heap: blocks whose sizes are powers of two, and free lists for each CPU.
//!
//! There is no lock, so no preempted vCPU can hold one. New memory comes from a pointer that all CPUs advance. Each CPU
//! has its own free lists, which it uses with interrupts masked. A freed block goes to the lists of the CPU that frees
//! it, so memory can move between CPUs and never returns. Programs that run for seconds can afford that. Blocks are
//! never split or merged.

#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::instructions::{cli, interrupts_enabled, sti};
use crate::percpu::{self, CLASSES};

/// Binary logarithm of the smallest block's size in bytes.
const SMALLEST: u32 = 4;

/// Address of the first unused byte.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Address after the last byte.
static END: AtomicUsize = AtomicUsize::new(0);

/// Makes `start..end` the heap. CPU 0 calls this before anything is allocated.
///
/// # Safety
/// The memory must be mapped and unused.
pub(crate) unsafe fn begin(start: usize, end: usize) {
    // ORDERING: Relaxed; other CPUs acquire the plan that CPU 0 publishes after this.
    NEXT.store(start, Relaxed);
    END.store(end, Relaxed);
}

/// The global allocator.
#[derive(Debug)]
pub struct Heap;

fn class(layout: Layout) -> usize {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST).next_power_of_two();
    (bytes.trailing_zeros() - SMALLEST) as usize
}

fn bytes(class: usize) -> usize {
    1 << (class as u32 + SMALLEST)
}

/// Returns unused memory for a block, aligned to `align` and to the block's size up to a page, or null if there is
/// none.
fn fresh(class: usize, align: usize) -> *mut u8 {
    let (bytes, align) = (bytes(class), align.max(bytes(class).min(4096)));
    // ORDERING: Relaxed, both; CPUs share only the pointer, and the memory after it is unused.
    let taken = NEXT.fetch_update(Relaxed, Relaxed, |next| {
        let start = next.next_multiple_of(align);
        (start.saturating_add(bytes) <= END.load(Relaxed)).then(|| start + bytes)
    });
    match taken {
        // The same computation as above on the same value.
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

// SAFETY: a block belongs to one allocation at a time. New blocks come from an atomic pointer, free ones from a list
// that only one CPU uses, with interrupts masked. Sizes and alignments are at least the requested ones: a block is
// aligned to its size up to a page, and to a larger alignment if the layout asks for it, in which case its class is at
// least that large.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        if class >= CLASSES {
            return ptr::null_mut();
        }
        masked(|| {
            let list = &percpu::this().free[class];
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
            let list = &percpu::this().free[class(layout)];
            // SAFETY: the caller gives the block back. It has at least 16 bytes and is aligned to 16.
            unsafe { block.cast::<*mut u8>().write(list.get()) };
            list.set(block);
        });
    }
}
