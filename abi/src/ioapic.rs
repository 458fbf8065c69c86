//! The I/O APIC: its two windows, its registers, the redirection entry.
//!
//! Source: Intel 82093AA datasheet; the EOI register is that of version 0x20 (Intel ICH family datasheets, chapter
//! "I/O Advanced Programmable Interrupt Controller").

/// Its physical address.
pub const ADDRESS: u64 = 0xfec0_0000;
/// Bytes of address space that it takes.
pub const SIZE: u64 = 0x100;
/// Input pins.
pub const PINS: u32 = 24;

/// Offset of the register that selects one: bits 7:0.
pub const SELECT: u32 = 0x00;
/// Offset of the window on the selected register, 32 bits.
pub const WINDOW: u32 = 0x10;
/// Offset of the EOI register: a vector written here ends the level-triggered interrupts that have it.
pub const EOI: u32 = 0x40;

/// Selects the ID: bits 27:24.
pub const ID: u32 = 0;
/// Selects the version: bits 7:0; bits 23:16 the last pin.
pub const VERSION: u32 = 1;
/// Selects the arbitration ID.
pub const ARBITRATION: u32 = 2;
/// Selects the low half of the first redirection entry; its high half comes next, and then the next entry.
pub const REDIRECTION: u32 = 0x10;
/// What [`VERSION`] reads as: version 0x20, 24 pins.
pub const VERSION_VALUE: u32 = 0x0017_0020;

/// Redirection entry: the vector.
pub const ENTRY_VECTOR: u64 = 0xff;
/// Redirection entry: delivery mode, bits 10:8, as in the LAPIC's interrupt command.
pub const ENTRY_MODE: u64 = 7 << 8;
/// Redirection entry: logical destination.
pub const ENTRY_LOGICAL: u64 = 1 << 11;
/// Redirection entry: delivery status, read-only.
pub const ENTRY_STATUS: u64 = 1 << 12;
/// Redirection entry: the pin is active when low.
pub const ENTRY_ACTIVE_LOW: u64 = 1 << 13;
/// Redirection entry: remote IRR, read-only: a LAPIC has accepted the level-triggered interrupt and not ended it yet.
pub const ENTRY_REMOTE_IRR: u64 = 1 << 14;
/// Redirection entry: level triggered.
pub const ENTRY_LEVEL: u64 = 1 << 15;
/// Redirection entry: masked.
pub const ENTRY_MASKED: u64 = 1 << 16;
/// Redirection entry: where the destination's 8 bits begin.
pub const ENTRY_DESTINATION_SHIFT: u32 = 56;
