//! The steal-time record: 64 bytes of guest memory that the host writes (KVM `struct kvm_steal_time`), with a word that
//! it only reads.

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
    /// The guest's word, which the host only reads: what the vCPU is in the midst of. The bits
    /// [`StealTime::IN_SECTION`], [`StealTime::IN_QUEUE`] and [`StealTime::WAITS_FOR_IPI`], and from
    /// [`StealTime::TARGET_SHIFT`] on the APIC ID of the target. KVM reserves these bytes.
    pub word: AtomicU32,
    /// When the vCPU's slice ends, on the guest's clock. Nanoseconds. 0: the host does not say, or no other thread
    /// waits for the pCPU. KVM reserves these bytes.
    pub slice_ends: AtomicU64,
    /// 1: the vCPU has come to the end of its slice, and runs on only for what its word says. It should yield to itself
    /// when that is over. KVM reserves these bytes.
    pub granted: AtomicU32,
    reserved: [u32; 7],
}

impl StealTime {
    /// Returns a zeroed record.
    pub const fn new() -> StealTime {
        StealTime {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            word: AtomicU32::new(0),
            slice_ends: AtomicU64::new(0),
            granted: AtomicU32::new(0),
            reserved: [0; 7],
        }
    }

    /// Bit 0 of `preempted` (`KVM_VCPU_PREEMPTED`): the host has preempted the vCPU.
    pub const PREEMPTED: u8 = 1;
    /// Bit 1 of `preempted` (`KVM_VCPU_FLUSH_TLB`): the guest asks for a TLB flush at the vCPU's next entry.
    pub const FLUSH_TLB: u8 = 2;

    /// Bit 0 of `word`: the vCPU holds a spinlock.
    pub const IN_SECTION: u32 = 1;
    /// Bit 1 of `word`: the vCPU waits for a spinlock.
    pub const IN_QUEUE: u32 = 2;
    /// Bit 2 of `word`: the vCPU waits for another one to answer an IPI.
    pub const WAITS_FOR_IPI: u32 = 4;
    /// First bit of the APIC ID of that other vCPU.
    pub const TARGET_SHIFT: u32 = 8;
}

const _: () = assert!(size_of::<StealTime>() == 64 && core::mem::offset_of!(StealTime, word) == 20);
const _: () = assert!(core::mem::offset_of!(StealTime, slice_ends) == 24);
const _: () = assert!(core::mem::offset_of!(StealTime, granted) == 32);
