//! The interval timer of a PC, of which counter 0 requests interrupt 0 of the interrupt controllers.
//!
//! Source: Intel 8254 datasheet, "Programming the 8254". The ports and the frequency are those of the PC.

/// Port of counter 0.
pub const COUNTER_0: u16 = 0x40;
/// Port of the control word.
pub const CONTROL: u16 = 0x43;
/// Frequency of all counters, in hertz.
pub const HZ: u64 = 1_193_182;
/// The count for which 0 stands.
pub const FULL_COUNT: u64 = 0x1_0000;

/// Control word: the counter, bits 7:6. 3 is the read-back command.
pub const COUNTER: u8 = 3 << 6;
/// Control word: which bytes of the count are accessed, bits 5:4. 0 latches the count.
pub const ACCESS: u8 = 3 << 4;
/// Control word: the low byte alone.
pub const ACCESS_LOW: u8 = 1 << 4;
/// Control word: the high byte alone.
pub const ACCESS_HIGH: u8 = 2 << 4;
/// Control word: the low byte, and then the high byte.
pub const ACCESS_BOTH: u8 = 3 << 4;
/// Control word: the mode, bits 3:1. Bit 3 has no meaning if bit 2 is set.
pub const MODE: u8 = 7 << 1;
/// Control word: interrupt on terminal count (mode 0), once.
pub const MODE_TERMINAL: u8 = 0;
/// Control word: rate generator (mode 2), again and again.
pub const MODE_RATE: u8 = 2 << 1;
