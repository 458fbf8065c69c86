//! Model-specific registers (MSRs).
//!
//! Sources: Intel SDM volume 4, and volume 3, chapter "Advanced Programmable Interrupt Controller (APIC)"; Linux
//! `Documentation/virt/kvm/x86/msr.rst` for KVM's registers, `0x4b564dxx`.

/// Time-stamp counter (TSC).
pub const TSC: u32 = 0x10;
/// `IA32_APIC_BASE`: the LAPIC's base address and mode.
pub const APIC_BASE: u32 = 0x1b;
/// `IA32_TSC_DEADLINE`: the TSC value at which the LAPIC timer fires in TSC-deadline mode. 0 disarms the timer.
pub const TSC_DEADLINE: u32 = 0x6e0;
/// First MSR of the x2APIC range. MSR `X2APIC_BASE + offset / 16` is the LAPIC register at `offset`.
pub const X2APIC_BASE: u32 = 0x800;
/// Last MSR of the x2APIC range.
pub const X2APIC_LAST: u32 = 0x8ff;
/// The 64-bit interrupt command register in x2APIC mode.
pub const X2APIC_ICR: u32 = 0x830;
/// The self-IPI register in x2APIC mode.
pub const X2APIC_SELF_IPI: u32 = 0x83f;

/// [`APIC_BASE`] bit: this CPU is the bootstrap processor.
pub const APIC_BASE_BSP: u64 = 1 << 8;
/// [`APIC_BASE`] bit: the LAPIC is in x2APIC mode.
pub const APIC_BASE_X2APIC: u64 = 1 << 10;
/// [`APIC_BASE`] bit: the LAPIC is enabled.
pub const APIC_BASE_ENABLE: u64 = 1 << 11;
/// Physical address of the LAPIC page after reset.
pub const APIC_BASE_ADDRESS: u64 = 0xfee0_0000;

/// `MSR_KVM_STEAL_TIME`: the guest-physical address of the record in bits 63:6, zeros in bits 5:1, enable in bit 0.
pub const STEAL_TIME: u32 = 0x4b56_4d03;
/// `MSR_KVM_PV_EOI_EN`: the guest-physical address of the EOI word in bits 63:2, zero in bit 1, enable in bit 0.
pub const PV_EOI: u32 = 0x4b56_4d04;
/// `MSR_KVM_POLL_CONTROL`: 1 in bit 0 lets the host poll when this vCPU halts; a guest that polls itself writes 0. The
/// other bits are zeros.
pub const POLL_CONTROL: u32 = 0x4b56_4d05;

/// [`STEAL_TIME`] bit: the record is registered.
pub const STEAL_TIME_ENABLE: u64 = 1;
/// [`STEAL_TIME`] bits that must be zero.
pub const STEAL_TIME_RESERVED: u64 = 0x3e;

/// [`PV_EOI`] bit: the word is registered.
pub const PV_EOI_ENABLE: u64 = 1;
/// [`PV_EOI`] bits that must be zero, since the word is aligned to 4 bytes.
pub const PV_EOI_RESERVED: u64 = 2;
/// Bit 0 of the word at [`PV_EOI`]'s address. The host sets it if the interrupt in service needs no write to the
/// LAPIC's EOI register; the guest ends the interrupt by clearing it in one instruction.
pub const PV_EOI_BIT: u8 = 1;
