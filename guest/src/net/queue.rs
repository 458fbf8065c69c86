//! The driver's side of a virtqueue.
//!
//! **No lost notification**: a side that asks for a notification checks the other side's index afterwards. A side that
//! moves its index checks afterwards whether a notification is wanted. On both sides a full fence is between the two.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU16, fence};

use holdfast_abi::virtio::{QUEUE_SIZE, Queue, need_event};

/// The driver's state of a queue, for one caller at a time.
#[derive(Debug, Default)]
pub struct DriverQueue {
    /// The next entry to offer.
    available: AtomicU16,
    /// The next entry that the device returns.
    used: AtomicU16,
}

impl DriverQueue {
    /// Offers `buffer` to the device. Returns `true` if the device must be notified.
    ///
    /// # Panics
    /// Panics if the queue is full.
    pub fn add(&self, queue: &Queue, buffer: u32) -> bool {
        let old = self.available.load(Relaxed);
        assert!(self.room() > 0, "offer a buffer to a full virtqueue");
        let new = old.wrapping_add(1);
        queue.offered[usize::from(old) % QUEUE_SIZE].store(buffer, Relaxed);
        self.available.store(new, Relaxed);
        // ORDERING: Release pairs with the device's Acquire: a reader of the index sees the entry.
        queue.available.store(new, Release);
        fence(SeqCst);
        need_event(queue.available_event.load(Relaxed), new, old)
    }

    /// The number of buffers that fit.
    pub fn room(&self) -> usize {
        let inside = self.available.load(Relaxed).wrapping_sub(self.used.load(Relaxed));
        QUEUE_SIZE - usize::from(inside)
    }

    /// Takes the next buffer that the device has returned.
    pub fn take(&self, queue: &Queue) -> Option<u32> {
        let next = self.used.load(Relaxed);
        // ORDERING: Acquire pairs with the device's Release.
        if queue.used.load(Acquire) == next || self.room() == QUEUE_SIZE {
            return None;
        }
        self.used.store(next.wrapping_add(1), Relaxed);
        Some(queue.returned[usize::from(next) % QUEUE_SIZE].load(Relaxed))
    }

    /// Asks for an interrupt when the device returns the next buffer. Returns `true` if the device has returned one
    /// already, for which no interrupt will come.
    #[must_use]
    pub fn enable(&self, queue: &Queue) -> bool {
        let next = self.used.load(Relaxed);
        queue.used_event.store(next, Relaxed);
        fence(SeqCst);
        queue.used.load(Acquire) != next
    }
}
