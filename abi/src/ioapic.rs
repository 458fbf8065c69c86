//! Where guests look for an I/O APIC. The host has none: all devices send messages.

/// Physical address of the I/O APIC.
pub const ADDRESS: u64 = 0xfec0_0000;
