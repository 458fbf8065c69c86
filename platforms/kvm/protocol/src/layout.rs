//! Guest-physical memory. The guest's page tables map it one to one.
//!
//! ```text
//! 0x0000_0000  not mapped: a null pointer faults
//! 0x0000_1000  orders: the encoded task
//! 0x0001_0000  page tables
//! 0x0002_0000  the ring
//! 0x0020_0000  the segments of the image's ELF file, then boot stacks, then the heap
//! 0xfee0_0000  the local APICs (xAPIC)
//! ```

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;
/// Address of the orders: a little-endian `u32` length, then the encoding of [`Orders`](crate::Orders).
pub const ORDERS: u64 = 0x1000;
/// Size in bytes of the memory for the orders, length included.
pub const ORDERS_BYTES: u64 = 0x4000;
/// Address of the page tables: one page each of the fourth and third level, four of the second, one of the first.
pub const TABLES: u64 = 0x1_0000;
/// Address of the ring: [`RING_HEADER_BYTES`](crate::RING_HEADER_BYTES), then [`RING_BYTES`] of records.
pub const RING: u64 = 0x2_0000;
/// Size of the ring's records in bytes.
pub const RING_BYTES: u32 = 0x2_0000;
/// Address at which images are linked.
pub const IMAGE: u64 = 0x20_0000;
/// End of the largest possible memory. Devices follow.
pub const MEMORY_END: u64 = 0xc000_0000;
/// Smallest memory with which a guest boots, in bytes.
pub const MEMORY_MIN: u64 = 16 << 20;
/// Size of each vCPU's boot stack in bytes.
pub const BOOT_STACK: u64 = 64 << 10;
/// I/O port of the image's doorbell. A write makes the VMM read the ring.
pub const DOORBELL: u16 = 0x5f0;
/// Vector of the interrupt at which an image reports its counters, once, as [`Before`] and [`Snapshot`]. A kernel that
/// does not expect it only acknowledges it.
///
/// [`Before`]: crate::Message::Before
/// [`Snapshot`]: crate::Message::Snapshot
pub const SNAPSHOT_VECTOR: u8 = 0xf3;
/// I/O port of stock Linux guests for messages, byte by byte: a little-endian `u32` length, then the encoding of a
/// [`Message`](crate::Message).
pub const REPORT: u16 = 0x5f4;
/// I/O port of stock Linux guests for the common start. A byte read is 0 until every measured guest of the run is
/// ready.
pub const START_LINE: u16 = 0x5f8;
/// Largest number of vCPUs of one guest. An 8-bit APIC ID and the locks' narrow layout allow no more.
pub const VCPUS_MAX: u32 = 254;
/// Text in a note of the image, by which the VMM knows that the image uses this version of the protocol.
pub const MAGIC: [u8; 16] = *b"holdfast-image/1";
