//! The I/O APIC: its memory-mapped windows, its indirect registers, and the redirection entry.
//!
//! Sources: Intel 82093AA datasheet. The EOI register exists from version 0x20 on (Intel ICH family datasheets, chapter
//! "I/O Advanced Programmable Interrupt Controller").

/// Physical address of the I/O APIC.
pub const ADDRESS: u64 = 0xfec0_0000;
/// Size of its address range in bytes.
pub const SIZE: u64 = 0x100;
/// Number of its input pins.
pub const PINS: u32 = 24;

/// Offset of the select register, whose bits 7:0 are the index of an indirect register.
pub const SELECT: u32 = 0x00;
/// Offset of the 32-bit window to the selected indirect register.
pub const WINDOW: u32 = 0x10;
/// Offset of the EOI register. Writing a vector ends the level-triggered interrupts with that vector.
pub const EOI: u32 = 0x40;

/// Index of the ID register: the ID is in bits 27:24.
pub const ID: u32 = 0;
/// Index of the version register: the version is in bits 7:0, the number of the last pin in bits 23:16.
pub const VERSION: u32 = 1;
/// Index of the arbitration ID register.
pub const ARBITRATION: u32 = 2;
/// Index of the low half of redirection entry 0. The high half of entry `n` follows its low half, at
/// `REDIRECTION + 2 * n + 1`.
pub const REDIRECTION: u32 = 0x10;
/// Value of the [`VERSION`] register: version 0x20, 24 pins.
pub const VERSION_VALUE: u32 = 0x0017_0020;

/// Redirection entry: the vector, bits 7:0.
pub const ENTRY_VECTOR: u64 = 0xff;
/// Redirection entry: the destination is logical.
pub const ENTRY_LOGICAL: u64 = 1 << 11;
/// Redirection entry: delivery status, read-only.
pub const ENTRY_STATUS: u64 = 1 << 12;
/// Redirection entry: remote IRR, read-only. Set from a LAPIC's acceptance of the level-triggered interrupt to its EOI.
pub const ENTRY_REMOTE_IRR: u64 = 1 << 14;
/// Redirection entry: the pin is level-triggered.
pub const ENTRY_LEVEL: u64 = 1 << 15;
/// Redirection entry: the pin is masked.
pub const ENTRY_MASKED: u64 = 1 << 16;
/// Redirection entry: position of the destination's 8 bits.
pub const ENTRY_DESTINATION_SHIFT: u32 = 56;
