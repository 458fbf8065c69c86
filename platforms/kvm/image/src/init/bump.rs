//! An allocator that never frees. The process allocates some kilobytes of messages, all by one thread.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

const BYTES: usize = 1 << 20;

struct Bump {
    memory: UnsafeCell<[u8; BYTES]>,
    used: AtomicUsize,
}

// SAFETY: each byte is allocated once, by the atomic update in `alloc`.
unsafe impl Sync for Bump {}

#[global_allocator]
static BUMP: Bump = Bump {
    memory: UnsafeCell::new([0; BYTES]),
    used: AtomicUsize::new(0),
};

// SAFETY: blocks are disjoint ranges of `memory`, each aligned as requested, and none is allocated twice.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.memory.get().cast::<u8>();
        let begin_of = |used: usize| (start.addr() + used).next_multiple_of(layout.align()) - start.addr();
        // ORDERING: Relaxed, both; threads share only the count, and the memory after it is unused.
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            begin_of(used).checked_add(layout.size()).filter(|end| *end <= BYTES)
        });
        match taken {
            Ok(used) => start.wrapping_add(begin_of(used)),
            Err(_) => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
