//! Message-signaled interrupts (MSI): a device stores 32 bits of data to an address in the LAPICs' range.
//!
//! Source: Intel SDM volume 3, section "Message Signalled Interrupts".

/// The fixed bits of an MSI address.
pub const ADDRESS: u64 = 0xfee0_0000;
/// Mask of the address bits that must equal those of [`ADDRESS`].
pub const ADDRESS_FIXED: u64 = !0xf_ffff;
/// Address: position of the destination's bits 7:0.
pub const ADDRESS_DESTINATION_SHIFT: u32 = 12;
/// Address bit: redirection hint. The interrupt goes to the CPU of the destination with the lowest priority.
pub const ADDRESS_REDIRECTION_HINT: u64 = 1 << 3;
/// Address bit: the destination is logical.
pub const ADDRESS_LOGICAL: u64 = 1 << 2;
/// Data: the vector, bits 7:0.
pub const DATA_VECTOR: u32 = 0xff;
/// Data bit: the interrupt is level-triggered.
pub const DATA_LEVEL: u32 = 1 << 15;

/// Returns the address of an MSI to the LAPIC with physical ID `destination`.
pub const fn address(destination: u8) -> u64 {
    ADDRESS | (destination as u64) << ADDRESS_DESTINATION_SHIFT
}
