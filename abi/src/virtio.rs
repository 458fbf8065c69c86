//! The virtio network and block devices: the queues that driver and device share, and the ports by which the driver
//! notifies.
//!
//! Source: OASIS "Virtual I/O Device (VIRTIO) Version 1.0", sections 2.4 (virtqueues, with `VIRTIO_F_EVENT_IDX`), 5.1
//! and 5.2. There is no descriptor table: each ring entry names one buffer, which has one descriptor.

use core::sync::atomic::{AtomicU16, AtomicU32};

/// Number of entries in a queue, a power of two.
pub const QUEUE_SIZE: usize = 256;
/// Number of the queue of received packets.
pub const RECEIVE: u16 = 0;
/// Number of the queue of packets to send.
pub const TRANSMIT: u16 = 1;
/// The I/O port by which the driver notifies the device: it writes the queue's number. It is `QUEUE_NOTIFY` of a legacy
/// PCI device, at the address that QEMU's firmware gives the first network card.
pub const NOTIFY_PORT: u16 = 0xc050;
/// The I/O port by which the driver notifies the block device of new requests. It is `QUEUE_NOTIFY` of a legacy PCI
/// device, at the address that QEMU's firmware gives the first disk next to a network card.
pub const DISK_NOTIFY_PORT: u16 = 0xc010;

/// One queue. Indices increase and wrap at 2^16; index `i` uses ring entry `i % QUEUE_SIZE`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Queue {
    /// Index of the next buffer that the driver will offer. Written by the driver.
    pub available: AtomicU16,
    /// The driver wants an interrupt when `used` passes this index. Written by the driver.
    pub used_event: AtomicU16,
    /// Index of the next buffer that the device will return. Written by the device.
    pub used: AtomicU16,
    /// The device wants a notification when `available` passes this index. Written by the device.
    pub available_event: AtomicU16,
    /// Ring of the buffers that the driver offers.
    pub offered: [AtomicU32; QUEUE_SIZE],
    /// Ring of the buffers that the device has returned.
    pub returned: [AtomicU32; QUEUE_SIZE],
}

impl Queue {
    /// Returns an empty queue.
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

/// The shared memory of a network device with one pair of queues.
#[derive(Debug, Default)]
pub struct Network {
    /// Queue of packets to the guest.
    pub receive: Queue,
    /// Queue of packets from the guest.
    pub transmit: Queue,
}

/// The shared memory of a block device with one queue.
#[derive(Debug)]
pub struct Disk {
    /// Queue of requests. Each buffer is the number of a request.
    pub requests: Queue,
    /// Pages of 4 KiB that each request transfers, by its number. Written by the driver.
    pub pages: [AtomicU32; QUEUE_SIZE],
}

impl Default for Disk {
    fn default() -> Disk {
        Disk {
            requests: Queue::new(),
            pages: [const { AtomicU32::new(0) }; QUEUE_SIZE],
        }
    }
}

/// Returns whether an index that moved from `old` to `new` passed `event` (`vring_need_event`, section 2.4.7.2 of the
/// standard).
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
