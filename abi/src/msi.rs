//! Message-signalled interrupts: a store of 32 bits of data to an address of the LAPICs' range.
//!
//! Source: Intel SDM volume 3, section "Message Signalled Interrupts"; the destination's further bits are KVM's
//! `MSI_EXT_DEST_ID` (kernel documentation of the CPUID leaf 0x40000001).

/// What bits 31:20 of the address are.
pub const ADDRESS: u64 = 0xfee0_0000;
/// Bits of the address that must be those of [`ADDRESS`].
pub const ADDRESS_FIXED: u64 = !0xf_ffff;
/// Address: where the destination's 8 bits begin.
pub const ADDRESS_DESTINATION_SHIFT: u32 = 12;
/// Address: where the destination's bits 14:8 begin, for guests that are offered them.
pub const ADDRESS_EXTENDED_SHIFT: u32 = 5;
/// Address: redirection hint, the interrupt goes to that one of the destinations that has the lowest priority.
pub const ADDRESS_REDIRECTION_HINT: u64 = 1 << 3;
/// Address: logical destination.
pub const ADDRESS_LOGICAL: u64 = 1 << 2;
/// Data: the vector.
pub const DATA_VECTOR: u32 = 0xff;
/// Data: delivery mode, bits 10:8, as in the LAPIC's interrupt command.
pub const DATA_MODE: u32 = 7 << 8;
/// Data: assert, for level-triggered interrupts.
pub const DATA_ASSERT: u32 = 1 << 14;
/// Data: level triggered.
pub const DATA_LEVEL: u32 = 1 << 15;

/// The address that signals the LAPIC with ID `destination`, by its physical ID.
pub const fn address(destination: u8) -> u64 {
    ADDRESS | (destination as u64) << ADDRESS_DESTINATION_SHIFT
}
