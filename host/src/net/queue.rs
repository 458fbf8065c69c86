//! The device's side of a virtqueue, as vhost has it. What the driver wrote is the guest's: any index can come.
//!
//! **No lost notification**: as the driver's side has it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

use holdfast_abi::virtio::{QUEUE_SIZE, Queue, need_event};

/// What the device knows of a queue.
#[derive(Clone, Debug, Default)]
pub struct DeviceQueue {
    /// The next entry that the driver offers.
    available: u16,
    /// The next entry to give back.
    used: u16,
}

impl DeviceQueue {
    /// Takes the next buffer that the driver offers, if there is one. A driver that claims more than fit in the queue
    /// is taken to offer nothing (vhost stops serving it).
    pub fn pop(&mut self, queue: &Queue) -> Option<u32> {
        // ORDERING: Acquire pairs with the driver's Release: the entry is seen.
        let waiting = queue.available.load(Acquire).wrapping_sub(self.available);
        if waiting == 0 || usize::from(waiting) > QUEUE_SIZE {
            return None;
        }
        let buffer = queue.offered[usize::from(self.available) % QUEUE_SIZE].load(Relaxed);
        self.available = self.available.wrapping_add(1);
        Some(buffer)
    }

    /// Gives `buffer` back. Whether the driver wants an interrupt.
    pub fn push(&mut self, queue: &Queue, buffer: u32) -> bool {
        let (old, new) = (self.used, self.used.wrapping_add(1));
        queue.returned[usize::from(old) % QUEUE_SIZE].store(buffer, Relaxed);
        self.used = new;
        // ORDERING: Release pairs with the driver's Acquire.
        queue.used.store(new, Release);
        fence(SeqCst);
        need_event(queue.used_event.load(Relaxed), new, old)
    }

    /// Wants to be rung for whatever is offered next. Whether something is offered already, for which nobody will ring.
    #[must_use]
    pub fn enable(&mut self, queue: &Queue) -> bool {
        queue.available_event.store(self.available, Relaxed);
        fence(SeqCst);
        let waiting = queue.available.load(Acquire).wrapping_sub(self.available);
        waiting != 0 && usize::from(waiting) <= QUEUE_SIZE
    }
}
