//! The steal-time record: 64 bytes of guest memory that the host writes (KVM `struct kvm_steal_time`).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// A vCPU's stolen time and its preempted flag. The guest zeroes and registers the record; from then on the host
/// updates it.
///
/// Source: Linux `Documentation/virt/kvm/x86/msr.rst`, `MSR_KVM_STEAL_TIME`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StealTime {
    /// Nanoseconds during which the vCPU was ready but did not run.
    pub steal: AtomicU64,
    /// Version of the record, odd while the host updates it.
    pub version: AtomicU32,
    /// Flags, of which KVM defines none: always 0.
    pub flags: AtomicU32,
    /// The bits [`StealTime::PREEMPTED`] and [`StealTime::FLUSH_TLB`].
    pub preempted: AtomicU8,
    reserved: [u32; 11],
}

impl StealTime {
    /// Returns a zeroed record.
    pub const fn new() -> StealTime {
        StealTime {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            reserved: [0; 11],
        }
    }

    /// Bit 0 of `preempted` (`KVM_VCPU_PREEMPTED`): the host has preempted the vCPU.
    pub const PREEMPTED: u8 = 1;
    /// Bit 1 of `preempted` (`KVM_VCPU_FLUSH_TLB`): the guest asks for a TLB flush at the vCPU's next entry.
    pub const FLUSH_TLB: u8 = 2;
}

const _: () = assert!(size_of::<StealTime>() == 64);
