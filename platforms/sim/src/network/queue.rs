//! The device's side of a virtqueue, as in vhost. The guest controls what the driver wrote: any index can come.
//!
//! **No lost notification**: as on the driver's side.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use holdfast_abi::virtio::{QUEUE_SIZE, Queue, need_event};

/// The device's state of a queue.
#[derive(Clone, Debug, Default)]
pub struct DeviceQueue {
    /// The next entry that the driver offers.
    available: u16,
    /// The next entry to give back.
    used: u16,
}

impl DeviceQueue {
    /// Takes the next buffer that the driver offers, if there is one. A driver that claims more entries than the queue
    /// has is treated as offering nothing (vhost stops serving it).
    pub fn pop(&mut self, queue: &Queue) -> Option<u32> {
        // ORDERING: Acquire pairs with the driver's Release, so the entry is visible.
        let waiting = queue.available.load(Acquire).wrapping_sub(self.available);
        if waiting == 0 || usize::from(waiting) > QUEUE_SIZE {
            return None;
        }
        let buffer = queue.offered[usize::from(self.available) % QUEUE_SIZE].load(Relaxed);
        self.available = self.available.wrapping_add(1);
        Some(buffer)
    }

    /// Gives `buffer` back. Returns whether the driver wants an interrupt.
    pub fn push(&mut self, queue: &Queue, buffer: u32) -> bool {
        let (old, new) = (self.used, self.used.wrapping_add(1));
        queue.returned[usize::from(old) % QUEUE_SIZE].store(buffer, Relaxed);
        self.used = new;
        // ORDERING: Release pairs with the driver's Acquire.
        queue.used.store(new, Release);
        fence(SeqCst);
        need_event(queue.used_event.load(Relaxed), new, old)
    }

    /// Asks the driver to ring the doorbell for the next offer. Returns whether there is an offer already, for which
    /// the driver will not ring.
    #[must_use]
    pub fn enable(&mut self, queue: &Queue) -> bool {
        queue.available_event.store(self.available, Relaxed);
        fence(SeqCst);
        let waiting = queue.available.load(Acquire).wrapping_sub(self.available);
        waiting != 0 && usize::from(waiting) <= QUEUE_SIZE
    }
}
