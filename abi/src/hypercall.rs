//! KVM hypercalls: number in RAX, arguments in RBX, RCX, RDX, RSI, result in RAX. A negative result is an error.
//!
//! Source: Linux `Documentation/virt/kvm/x86/hypercalls.rst` and `include/uapi/linux/kvm_para.h`.

/// `KVM_HC_KICK_CPU`: ends the current or the next HLT of a vCPU. Argument 0 is flags (0), argument 1 the target's APIC
/// ID.
pub const KICK_CPU: u64 = 5;
/// `KVM_HC_SEND_IPI`: sends one vector to up to [`SEND_IPI_IDS`] APIC IDs. The arguments are the low and the high word
/// of the bitmap, the APIC ID of bit 0, and the ICR. The result is the number of vCPUs that accepted the interrupt.
pub const SEND_IPI: u64 = 10;
/// Number of APIC IDs that one [`SEND_IPI`] of a 64-bit kernel reaches: the bits of two words.
pub const SEND_IPI_IDS: u32 = 128;
/// `KVM_HC_SCHED_YIELD`: directed yield. Argument 0 is the target's APIC ID.
pub const SCHED_YIELD: u64 = 11;

/// `KVM_ENOSYS`: the hypercall does not exist, or the host does not offer it to this guest.
pub const ENOSYS: i64 = -1000;
/// `KVM_EPERM`: the caller was not at CPL 0.
pub const EPERM: i64 = -1;
/// `KVM_EFAULT`: a guest address is not memory.
pub const EFAULT: i64 = -14;
/// `KVM_EINVAL`: an argument is out of range.
pub const EINVAL: i64 = -22;
