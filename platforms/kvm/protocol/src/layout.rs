//! Guest-physical memory, which is mapped one to one.
//!
//! ```text
//! 0x0000_0000  nothing: a null pointer faults
//! 0x0000_1000  orders: what to run, encoded
//! 0x0001_0000  page tables
//! 0x0002_0000  the ring
//! 0x0020_0000  the image, as its ELF headers say; after it boot stacks, then the heap
//! 0xfee0_0000  the local APICs (xAPIC)
//! ```

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The orders: a little-endian `u32` length, then the encoding of [`Orders`](crate::Orders).
pub const ORDERS: u64 = 0x1000;
/// Bytes for the orders, length included.
pub const ORDERS_BYTES: u64 = 0x4000;
/// The page tables: one page each of the fourth and third level, four of the second, one of the first.
pub const TABLES: u64 = 0x1_0000;
/// The ring: [`RING_HEADER_BYTES`](crate::RING_HEADER_BYTES), then [`RING_BYTES`] of records.
pub const RING: u64 = 0x2_0000;
/// Bytes of records in the ring.
pub const RING_BYTES: u32 = 0x2_0000;
/// Where images are linked to.
pub const IMAGE: u64 = 0x20_0000;
/// Memory ends before this, where devices begin.
pub const MEMORY_END: u64 = 0xc000_0000;
/// The least memory that a guest boots with.
pub const MEMORY_MIN: u64 = 16 << 20;
/// Bytes of each vCPU's boot stack.
pub const BOOT_STACK: u64 = 64 << 10;
/// The port whose write says: look at the ring.
pub const DOORBELL: u16 = 0x5f0;
/// Stock Linux guests: the port that takes messages, byte by byte: a little-endian `u32` length, then the encoding of a
/// [`Message`](crate::Message).
pub const REPORT: u16 = 0x5f4;
/// Stock Linux guests: a byte read here is 0 until every measured guest of the run has come to its start line.
pub const START_LINE: u16 = 0x5f8;
/// The most vCPUs of one guest: what the locks' narrow layout and an APIC ID of 8 bits allow without more.
pub const VCPUS_MAX: u32 = 254;
/// In a note of the image's, which the VMM looks for: image and VMM speak the same version of this protocol.
pub const MAGIC: [u8; 16] = *b"holdfast-image/1";
