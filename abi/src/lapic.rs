//! The local APIC (LAPIC): register offsets in its page, bit layouts, the interrupt command register.
//!
//! Source: Intel SDM volume 3, chapter "Advanced Programmable Interrupt Controller (APIC)".
//!
//! Offsets are in bytes. Each register has 32 bits and starts at a multiple of 16 bytes. The bit for vector `v` in ISR,
//! TMR or IRR is bit `v % 32` of register `v / 32`.

/// APIC ID register: bits 31:24 in xAPIC mode, all 32 bits in x2APIC mode.
pub const ID: u32 = 0x20;
/// Version register: the version in bits 7:0, the index of the highest LVT entry in bits 23:16.
pub const VERSION: u32 = 0x30;
/// Task-priority register (TPR).
pub const TPR: u32 = 0x80;
/// Arbitration-priority register (APR).
pub const APR: u32 = 0x90;
/// Processor-priority register (PPR).
pub const PPR: u32 = 0xa0;
/// End-of-interrupt register (EOI). A write of any value ends the interrupt in service.
pub const EOI: u32 = 0xb0;
/// Remote read register (RRD).
pub const RRD: u32 = 0xc0;
/// Logical destination register (LDR).
pub const LDR: u32 = 0xd0;
/// Destination format register (DFR): the model in bits 31:28.
pub const DFR: u32 = 0xe0;
/// Spurious-interrupt vector register (SVR): the vector in bits 7:0, [`SVR_ENABLE`] in bit 8.
pub const SVR: u32 = 0xf0;
/// In-service register (ISR), the first of eight.
pub const ISR: u32 = 0x100;
/// Trigger-mode register (TMR), the first of eight.
pub const TMR: u32 = 0x180;
/// Interrupt-request register (IRR), the first of eight.
pub const IRR: u32 = 0x200;
/// Error status register (ESR).
pub const ESR: u32 = 0x280;
/// Low half of the interrupt command register (ICR). A write sends the interrupt.
pub const ICR_LOW: u32 = 0x300;
/// High half of the interrupt command register: the destination in bits 31:24.
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
/// Timer: initial count. A write arms the timer.
pub const TIMER_INITIAL: u32 = 0x380;
/// Timer: current count.
pub const TIMER_CURRENT: u32 = 0x390;
/// Timer: divide configuration, bits 3, 1 and 0.
pub const TIMER_DIVIDE: u32 = 0x3e0;
/// Self-IPI register, in x2APIC mode only. A write sends the vector in bits 7:0 to the writing CPU.
pub const SELF_IPI: u32 = 0x3f0;
/// Distance in bytes from one register to the next.
pub const STRIDE: u32 = 16;
/// IDs that logical destinations of x2APIC mode can name: 65536 clusters of 16 (SDM volume 3, "Logical Destination Mode
/// in x2APIC Mode").
pub const X2APIC_IDS: u32 = 1 << 20;
/// Size of the register page in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Value of the [`VERSION`] register: version 0x14, six LVT entries. KVM reports this value if it does not emulate LVT
/// CMCI.
pub const VERSION_VALUE: u32 = 0x0005_0014;
/// [`SVR`] bit: software has enabled the LAPIC.
pub const SVR_ENABLE: u32 = 1 << 8;
/// [`DFR`] value of the flat logical model.
pub const DFR_FLAT: u32 = 0xffff_ffff;
/// [`ESR`] bit: software tried to send a vector below 16.
pub const ESR_SEND_ILLEGAL_VECTOR: u32 = 1 << 5;
/// [`ESR`] bit: the LAPIC received a vector below 16.
pub const ESR_RECEIVE_ILLEGAL_VECTOR: u32 = 1 << 6;
/// [`ESR`] bit: software accessed a register that does not exist.
pub const ESR_ILLEGAL_REGISTER: u32 = 1 << 7;
/// The lowest vector that a LAPIC can send or receive. Lower ones are reserved for exceptions.
pub const FIRST_LEGAL_VECTOR: u8 = 16;

/// Local vector table bit: the entry is masked.
pub const LVT_MASKED: u32 = 1 << 16;
/// [`LVT_TIMER`]: mode bits 18:17.
pub const LVT_TIMER_MODE: u32 = 3 << 17;
/// [`LVT_TIMER`] mode: one shot.
pub const LVT_TIMER_ONE_SHOT: u32 = 0;
/// [`LVT_TIMER`] mode: periodic.
pub const LVT_TIMER_PERIODIC: u32 = 1 << 17;
/// [`LVT_TIMER`] mode: TSC deadline ([`crate::msr::TSC_DEADLINE`]).
pub const LVT_TIMER_TSC_DEADLINE: u32 = 2 << 17;

/// [`ICR_LOW`] bit: the destination is logical.
pub const ICR_LOGICAL: u32 = 1 << 11;
/// [`ICR_LOW`] bit, read-only: delivery is pending.
pub const ICR_BUSY: u32 = 1 << 12;
/// [`ICR_LOW`] bit: assert, as opposed to de-assert.
pub const ICR_ASSERT: u32 = 1 << 14;
/// [`ICR_LOW`] bit: the interrupt is level-triggered.
pub const ICR_LEVEL: u32 = 1 << 15;
/// [`ICR_LOW`]: delivery mode, bits 10:8.
pub const ICR_MODE: u32 = 7 << 8;
/// [`ICR_LOW`]: destination shorthand, bits 19:18.
pub const ICR_SHORTHAND: u32 = 3 << 18;
/// [`ICR_SHORTHAND`] value: no shorthand, the destination field is used.
pub const ICR_SHORTHAND_NONE: u32 = 0;
/// [`ICR_SHORTHAND`] value: the sender itself.
pub const ICR_SHORTHAND_SELF: u32 = 1 << 18;
/// [`ICR_SHORTHAND`] value: all CPUs, the sender included.
pub const ICR_SHORTHAND_ALL: u32 = 2 << 18;
/// [`ICR_SHORTHAND`] value: all CPUs but the sender.
pub const ICR_SHORTHAND_OTHERS: u32 = 3 << 18;
/// The physical destination of a broadcast in xAPIC mode.
pub const BROADCAST: u32 = 0xff;
/// The physical destination of a broadcast in x2APIC mode.
pub const X2APIC_BROADCAST: u32 = 0xffff_ffff;

/// Delivery mode, as in bits 10:8 of [`ICR_LOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeliveryMode {
    /// The vector goes to all CPUs of the destination.
    Fixed = 0,
    /// The vector goes to the CPU of the destination with the lowest priority.
    LowestPriority = 1,
    /// System management interrupt (SMI).
    Smi = 2,
    /// KVM's pseudo-interrupt that ends a halt (`APIC_DM_REMRD`). The mode is reserved in hardware.
    Unhalt = 3,
    /// Non-maskable interrupt (NMI).
    Nmi = 4,
    /// Reset of the target CPU to its wait-for-SIPI state (INIT).
    Init = 5,
    /// Start-up IPI (SIPI), which makes a CPU in the wait-for-SIPI state execute.
    Startup = 6,
    /// Interrupt whose vector an external 8259 supplies.
    ExtInt = 7,
}

impl DeliveryMode {
    /// Returns the mode in bits 10:8 of `icr_low`.
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

    /// Returns the mode as bits 10:8 of [`ICR_LOW`].
    pub const fn bits(self) -> u32 {
        (self as u32) << 8
    }
}

/// Returns the xAPIC value of [`ICR_HIGH`] for the physical or logical ID `destination`.
pub const fn icr_high(destination: u8) -> u32 {
    (destination as u32) << 24
}
