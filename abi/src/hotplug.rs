//! The ports at which a guest's kernel tells a VMM that a CPU has left.
//!
//! Source: QEMU, docs/specs/acpi_cpu_hotplug.rst, at the address of its ICH9 machines.

/// Port of the number of the CPU that the other port is about, 32 bits.
pub const SELECT: u16 = 0xcd8;
/// Port of the flags of that CPU.
pub const FLAGS: u16 = SELECT + 4;
/// Flag: the guest ejects the CPU, whose thread may end.
pub const EJECT: u32 = 1 << 3;
