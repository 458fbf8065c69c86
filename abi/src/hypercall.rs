//! KVM hypercalls: number in RAX, arguments in RBX, RCX, RDX, RSI, result in RAX.
//!
//! Source: the kernel's KVM hypercall documentation. A result below zero is an error.

/// Ends the next or the current HLT of a vCPU: argument 0 is flags (0), argument 1 the target's APIC ID.
pub const KICK_CPU: u64 = 5;
/// Sends one vector to up to [`SEND_IPI_IDS`] APIC IDs: bitmap low and high, APIC ID of bit 0, ICR. The result is how many
/// have taken it.
pub const SEND_IPI: u64 = 10;
/// APIC IDs that one [`SEND_IPI`] reaches from a 64-bit kernel: two words of bits.
pub const SEND_IPI_IDS: u32 = 128;
/// Directed yield: argument 0 is the target's APIC ID.
pub const SCHED_YIELD: u64 = 11;

/// No such hypercall, or not offered to this guest (KVM_ENOSYS).
pub const ENOSYS: i64 = -1000;
/// Called at CPL above 0.
pub const EPERM: i64 = -1;
/// A guest address that is not memory.
pub const EFAULT: i64 = -14;
/// An argument that makes no sense.
pub const EINVAL: i64 = -22;
