//! Model-specific registers.
//!
//! Source: Intel SDM volume 4 and volume 3 chapter "APIC"; the kernel's KVM MSR documentation for `0x4b564dxx`.

/// Time-stamp counter.
pub const TSC: u32 = 0x10;
/// LAPIC base address and mode.
pub const APIC_BASE: u32 = 0x1b;
/// TSC value at which the LAPIC timer fires, in TSC-deadline mode; 0 disarms it.
pub const TSC_DEADLINE: u32 = 0x6e0;
/// First x2APIC register: MSR `X2APIC_BASE + offset / 16` is the LAPIC register at `offset`.
pub const X2APIC_BASE: u32 = 0x800;
/// Last MSR of the x2APIC range.
pub const X2APIC_LAST: u32 = 0x8ff;
/// The whole 64-bit interrupt command register in x2APIC mode.
pub const X2APIC_ICR: u32 = 0x830;
/// Self-IPI in x2APIC mode.
pub const X2APIC_SELF_IPI: u32 = 0x83f;

/// [`APIC_BASE`]: this is the bootstrap processor.
pub const APIC_BASE_BSP: u64 = 1 << 8;
/// [`APIC_BASE`]: x2APIC mode.
pub const APIC_BASE_X2APIC: u64 = 1 << 10;
/// [`APIC_BASE`]: LAPIC enabled.
pub const APIC_BASE_ENABLE: u64 = 1 << 11;
/// The LAPIC's physical address after reset.
pub const APIC_BASE_ADDRESS: u64 = 0xfee0_0000;

/// KVM steal time: bits 63:6 the record's guest-physical address, bits 5:1 zero, bit 0 enable.
pub const STEAL_TIME: u32 = 0x4b56_4d03;
/// KVM end of interrupt by memory: bits 63:2 the word's guest-physical address, bit 1 zero, bit 0 enable.
pub const PV_EOI: u32 = 0x4b56_4d04;
/// KVM halt polling: bit 0 set (the default): the host may poll when this vCPU halts.
pub const POLL_CONTROL: u32 = 0x4b56_4d05;

/// [`STEAL_TIME`]: the record is registered.
pub const STEAL_TIME_ENABLE: u64 = 1;
/// [`STEAL_TIME`]: bits that must be zero.
pub const STEAL_TIME_RESERVED: u64 = 0x3e;

/// AMD: rings the AVIC doorbell of the host CPU whose APIC ID is written (APM volume 2, section 15.29).
pub const AVIC_DOORBELL: u32 = 0xc001_011b;

/// [`PV_EOI`]: the word is registered.
pub const PV_EOI_ENABLE: u64 = 1;
/// [`PV_EOI`]: bits that must be zero, since the word is aligned to 4 bytes.
pub const PV_EOI_RESERVED: u64 = 2;
/// Bit 0 of the word at [`PV_EOI`]'s address: set by the host, the interrupt in service needs no write to the APIC; the
/// guest clears it in one instruction instead.
pub const PV_EOI_BIT: u8 = 1;
