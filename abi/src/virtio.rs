//! virtio network device: the queues that driver and device share, and where the driver rings.
//!
//! Source: OASIS "Virtual I/O Device (VIRTIO) Version 1.0", sections 2.4 (virtqueues, with `VIRTIO_F_EVENT_IDX`) and 5.1. Left
//! out: the descriptor table. A buffer is what its ring entry names, one descriptor each.

use core::sync::atomic::{AtomicU16, AtomicU32};

/// Entries of a queue, a power of two.
pub const QUEUE_SIZE: usize = 256;
/// The queue of received packets, by its number.
pub const RECEIVE: u16 = 0;
/// The queue of packets to be sent.
pub const TRANSMIT: u16 = 1;
/// The I/O port that rings the device, to which the queue's number is written (a legacy PCI device's `QUEUE_NOTIFY`, where
/// QEMU's firmware puts the first network card).
pub const NOTIFY_PORT: u16 = 0xc050;

/// One queue. Indices count on and wrap at 2^16; an index's entry is its remainder by [`QUEUE_SIZE`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Queue {
    /// Driver's: the next buffer that it will offer.
    pub available: AtomicU16,
    /// Driver's: it wants an interrupt when `used` passes this.
    pub used_event: AtomicU16,
    /// Device's: the next buffer that it will give back.
    pub used: AtomicU16,
    /// Device's: it wants to be rung when `available` passes this.
    pub available_event: AtomicU16,
    /// What the driver offers.
    pub offered: [AtomicU32; QUEUE_SIZE],
    /// What the device has given back.
    pub returned: [AtomicU32; QUEUE_SIZE],
}

impl Queue {
    /// An empty queue; usable in a `static`.
    pub const fn new() -> Queue {
        Queue {
            available: AtomicU16::new(0),
            used_event: AtomicU16::new(0),
            used: AtomicU16::new(0),
            available_event: AtomicU16::new(0),
            offered: [const { AtomicU32::new(0) }; QUEUE_SIZE],
            returned: [const { AtomicU32::new(0) }; QUEUE_SIZE],
        }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

/// The memory of a network device with one pair of queues.
#[derive(Debug, Default)]
pub struct Network {
    /// Packets to the guest.
    pub receive: Queue,
    /// Packets from the guest.
    pub transmit: Queue,
}

/// Whether an index that went from `old` to `new` passed `event` (section 2.4.7.2 of the standard, `vring_need_event`).
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
