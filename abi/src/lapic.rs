//! The local APIC: register offsets in its page, bit layouts, the interrupt command register.
//!
//! Source: Intel SDM volume 3, chapter "Advanced Programmable Interrupt Controller". Offsets are bytes; each register is
//! 32 bits at a 16-byte stride. The bit for vector `v` in ISR, TMR or IRR is bit `v % 32` of register `v / 32`.

/// APIC ID: bits 31:24 (xAPIC), all 32 bits (x2APIC).
pub const ID: u32 = 0x20;
/// Version: bits 7:0 the version, bits 23:16 the highest LVT entry.
pub const VERSION: u32 = 0x30;
/// Task priority.
pub const TPR: u32 = 0x80;
/// Arbitration priority.
pub const APR: u32 = 0x90;
/// Processor priority.
pub const PPR: u32 = 0xa0;
/// End of interrupt: any write.
pub const EOI: u32 = 0xb0;
/// Remote read.
pub const RRD: u32 = 0xc0;
/// Logical destination.
pub const LDR: u32 = 0xd0;
/// Destination format: bits 31:28.
pub const DFR: u32 = 0xe0;
/// Spurious-interrupt vector: bits 7:0, and bit 8 ([`SVR_ENABLE`]).
pub const SVR: u32 = 0xf0;
/// In-service register, first of eight.
pub const ISR: u32 = 0x100;
/// Trigger-mode register, first of eight.
pub const TMR: u32 = 0x180;
/// Interrupt-request register, first of eight.
pub const IRR: u32 = 0x200;
/// Error status.
pub const ESR: u32 = 0x280;
/// Interrupt command, low half; writing it sends.
pub const ICR_LOW: u32 = 0x300;
/// Interrupt command, high half: destination in bits 31:24.
pub const ICR_HIGH: u32 = 0x310;
/// Local vector table: timer.
pub const LVT_TIMER: u32 = 0x320;
/// Local vector table: thermal monitor.
pub const LVT_THERMAL: u32 = 0x330;
/// Local vector table: performance counters.
pub const LVT_PERFORMANCE: u32 = 0x340;
/// Local vector table: LINT0.
pub const LVT_LINT0: u32 = 0x350;
/// Local vector table: LINT1.
pub const LVT_LINT1: u32 = 0x360;
/// Local vector table: error.
pub const LVT_ERROR: u32 = 0x370;
/// Timer: initial count; writing it arms.
pub const TIMER_INITIAL: u32 = 0x380;
/// Timer: current count.
pub const TIMER_CURRENT: u32 = 0x390;
/// Timer: divide configuration, bits 3, 1 and 0.
pub const TIMER_DIVIDE: u32 = 0x3e0;
/// x2APIC mode only: sends the vector in bits 7:0 to the sender.
pub const SELF_IPI: u32 = 0x3f0;
/// Bytes from one register to the next.
pub const STRIDE: u32 = 16;
/// Bytes in the register page.
pub const PAGE_BYTES: usize = 4096;

/// Version word: version 0x14, six LVT entries (what KVM reports without LVT CMCI).
pub const VERSION_VALUE: u32 = 0x0005_0014;
/// [`SVR`]: the LAPIC is enabled by software.
pub const SVR_ENABLE: u32 = 1 << 8;
/// [`DFR`] for the flat logical model.
pub const DFR_FLAT: u32 = 0xffff_ffff;
/// [`ESR`]: a message with a vector below 16 was to be sent.
pub const ESR_SEND_ILLEGAL_VECTOR: u32 = 1 << 5;
/// [`ESR`]: a message with a vector below 16 was received.
pub const ESR_RECEIVE_ILLEGAL_VECTOR: u32 = 1 << 6;
/// [`ESR`]: an access to a register that does not exist.
pub const ESR_ILLEGAL_REGISTER: u32 = 1 << 7;
/// Vectors below this one are reserved for exceptions and cannot be sent.
pub const FIRST_LEGAL_VECTOR: u8 = 16;

/// Local vector table: masked.
pub const LVT_MASKED: u32 = 1 << 16;
/// [`LVT_TIMER`]: mode bits 18:17.
pub const LVT_TIMER_MODE: u32 = 3 << 17;
/// [`LVT_TIMER`] mode: one shot.
pub const LVT_TIMER_ONE_SHOT: u32 = 0;
/// [`LVT_TIMER`] mode: periodic.
pub const LVT_TIMER_PERIODIC: u32 = 1 << 17;
/// [`LVT_TIMER`] mode: TSC deadline ([`crate::msr::TSC_DEADLINE`]).
pub const LVT_TIMER_TSC_DEADLINE: u32 = 2 << 17;

/// [`ICR_LOW`]: logical destination.
pub const ICR_LOGICAL: u32 = 1 << 11;
/// [`ICR_LOW`]: delivery pending.
pub const ICR_BUSY: u32 = 1 << 12;
/// [`ICR_LOW`]: assert.
pub const ICR_ASSERT: u32 = 1 << 14;
/// [`ICR_LOW`]: level triggered.
pub const ICR_LEVEL: u32 = 1 << 15;
/// [`ICR_LOW`]: delivery mode, bits 10:8.
pub const ICR_MODE: u32 = 7 << 8;
/// [`ICR_LOW`]: destination shorthand, bits 19:18.
pub const ICR_SHORTHAND: u32 = 3 << 18;
/// Shorthand: none, the destination field counts.
pub const ICR_SHORTHAND_NONE: u32 = 0;
/// Shorthand: the sender itself.
pub const ICR_SHORTHAND_SELF: u32 = 1 << 18;
/// Shorthand: all, the sender included.
pub const ICR_SHORTHAND_ALL: u32 = 2 << 18;
/// Shorthand: all but the sender.
pub const ICR_SHORTHAND_OTHERS: u32 = 3 << 18;
/// Physical destination that means all (xAPIC).
pub const BROADCAST: u32 = 0xff;
/// Physical destination that means all (x2APIC).
pub const X2APIC_BROADCAST: u32 = 0xffff_ffff;

/// Delivery mode, as in bits 10:8 of [`ICR_LOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeliveryMode {
    /// To all processors of the destination.
    Fixed = 0,
    /// To that one with the lowest priority.
    LowestPriority = 1,
    /// System management interrupt.
    Smi = 2,
    /// Reserved in hardware; KVM's pseudo-interrupt that ends a halt (`APIC_DM_REMRD`).
    Unhalt = 3,
    /// Non-maskable interrupt.
    Nmi = 4,
    /// INIT.
    Init = 5,
    /// Start-up IPI.
    Startup = 6,
    /// As from an external 8259.
    ExtInt = 7,
}

impl DeliveryMode {
    /// The mode that `icr_low` asks for.
    pub const fn of(icr_low: u32) -> DeliveryMode {
        match (icr_low >> 8) & 7 {
            0 => DeliveryMode::Fixed,
            1 => DeliveryMode::LowestPriority,
            2 => DeliveryMode::Smi,
            3 => DeliveryMode::Unhalt,
            4 => DeliveryMode::Nmi,
            5 => DeliveryMode::Init,
            6 => DeliveryMode::Startup,
            _ => DeliveryMode::ExtInt,
        }
    }

    /// The mode as bits of [`ICR_LOW`].
    pub const fn bits(self) -> u32 {
        (self as u32) << 8
    }
}

/// The destination field of xAPIC's [`ICR_HIGH`] for `destination`.
pub const fn icr_high(destination: u8) -> u32 {
    (destination as u32) << 24
}
