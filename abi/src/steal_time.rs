//! The steal-time record: 64 bytes that a guest lends its host (KVM `struct kvm_steal_time`).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// A vCPU's steal time and whether it is preempted. The guest zeroes and registers it; the host then keeps it up.
///
/// Source: the kernel's KVM MSR documentation, `MSR_KVM_STEAL_TIME`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StealTime {
    /// Nanoseconds for which the vCPU was ready to run and did not.
    pub steal: AtomicU64,
    /// Odd while the host updates the record.
    pub version: AtomicU32,
    /// Always 0 today.
    pub flags: AtomicU32,
    /// [`StealTime::PREEMPTED`] and [`StealTime::FLUSH_TLB`].
    pub preempted: AtomicU8,
    reserved: [u32; 11],
}

impl StealTime {
    /// A zeroed record; usable in a `static`.
    pub const fn new() -> StealTime {
        StealTime {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            reserved: [0; 11],
        }
    }

    /// Bit 0 of `preempted`: the host has taken the vCPU off its CPU.
    pub const PREEMPTED: u8 = 1;
    /// Bit 1 of `preempted`: the guest asks for a TLB flush at the next entry.
    pub const FLUSH_TLB: u8 = 2;
}

const _: () = assert!(size_of::<StealTime>() == 64);
