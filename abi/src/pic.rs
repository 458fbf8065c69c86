//! The pair of interrupt controllers of a PC: ports, and the bits of their command words.
//!
//! Source: Intel 8259A datasheet, "Programming the 8259A". The ports, and the input at which the second controller is
//! connected, are those of the PC/AT.

/// Port of the first controller: ICW1, OCW2 and OCW3. The data port follows.
pub const MASTER: u16 = 0x20;
/// Port of the second controller.
pub const SLAVE: u16 = 0xa0;
/// Distance from a controller's first port to its data port: the mask (OCW1), and ICW2 to ICW4.
pub const DATA: u16 = 1;

/// The inputs of one controller.
pub const INPUTS: u32 = 8;
/// The input of the first controller at which the second one is.
pub const CASCADE: u32 = 2;

/// ICW1: the bit that makes a command word ICW1.
pub const ICW1: u8 = 1 << 4;
/// ICW1: ICW4 follows.
pub const ICW1_WITH_ICW4: u8 = 1 << 0;
/// ICW1: there is only one controller, and no ICW3.
pub const ICW1_SINGLE: u8 = 1 << 1;
/// ICW2: the bits of the vector of input 0.
pub const ICW2_VECTOR: u8 = 0xf8;
/// ICW4: 8086 mode.
pub const ICW4_8086: u8 = 1 << 0;
/// ICW4: interrupts end when they are acknowledged.
pub const ICW4_AUTO_EOI: u8 = 1 << 1;

/// OCW2: end the interrupt in service that has the highest priority.
pub const OCW2_EOI: u8 = 0x20;
/// OCW2: end the interrupt of the input in bits 2:0.
pub const OCW2_EOI_OF: u8 = 0x60;
/// OCW3: the bit that makes a command word OCW3.
pub const OCW3: u8 = 1 << 3;
/// OCW3: reads of the first port return IRR from now on.
pub const OCW3_READ_IRR: u8 = 0b10;
/// OCW3: reads of the first port return ISR from now on.
pub const OCW3_READ_ISR: u8 = 0b11;
