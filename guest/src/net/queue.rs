//! The driver's side of a virtqueue.
//!
//! **No lost notification**: who says that it wants one looks at the other side's index afterwards, and who moves its index
//! looks afterwards whether one is wanted; between both there is a full fence on either side.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU16, fence};

use holdfast_abi::virtio::{QUEUE_SIZE, Queue, need_event};

/// What the driver knows of a queue. One caller at a time.
#[derive(Debug, Default)]
pub struct DriverQueue {
    /// The next entry to offer.
    available: AtomicU16,
    /// The next entry that comes back.
    used: AtomicU16,
}

impl DriverQueue {
    /// Offers `buffer` to the device, which must have given back enough for it to fit. Whether the device is to be rung.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn add(&self, queue: &Queue, buffer: u32) -> bool {
        let old = self.available.load(Relaxed);
        assert!(self.room() > 0, "a full queue is offered one more buffer");
        let new = old.wrapping_add(1);
        queue.offered[usize::from(old) % QUEUE_SIZE].store(buffer, Relaxed);
        self.available.store(new, Relaxed);
        // ORDERING: Release pairs with the device's Acquire: who sees the index sees the entry.
        queue.available.store(new, Release);
        fence(SeqCst);
        need_event(queue.available_event.load(Relaxed), new, old)
    }

    /// How many buffers fit.
    pub fn room(&self) -> usize {
        let inside = self.available.load(Relaxed).wrapping_sub(self.used.load(Relaxed));
        QUEUE_SIZE - usize::from(inside)
    }

    /// Takes what the device has given back.
    pub fn take(&self, queue: &Queue) -> Option<u32> {
        let next = self.used.load(Relaxed);
        // ORDERING: Acquire pairs with the device's Release.
        if queue.used.load(Acquire) == next || self.room() == QUEUE_SIZE {
            return None;
        }
        self.used.store(next.wrapping_add(1), Relaxed);
        Some(queue.returned[usize::from(next) % QUEUE_SIZE].load(Relaxed))
    }

    /// Wants an interrupt for whatever comes back next. Whether something has come back already, for which none will come.
    #[must_use]
    pub fn enable(&self, queue: &Queue) -> bool {
        let next = self.used.load(Relaxed);
        queue.used_event.store(next, Relaxed);
        fence(SeqCst);
        queue.used.load(Acquire) != next
    }
}
