//! The steal-time record: 64 bytes of guest memory that the host writes (KVM `struct kvm_steal_time`).

use core::sync::atomic::Ordering::Relaxed;
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
    /// The index (APIC ID at reset) of the vCPU that holds the lock for which this vCPU waits, plus 1. 0: unknown, or
    /// it does not wait. Written by the guest.
    pub lock_holder: AtomicU32,
    /// The index of the waiter in front of this vCPU in the queue of that lock, plus 1. 0: there is none, or it is
    /// unknown. Written by the guest.
    pub lock_waiter: AtomicU32,
    reserved: [u32; 9],
}

/// What a record says of the lock for which its vCPU waits: [`StealTime::lock_holder`] and
/// [`StealTime::lock_waiter`].
///
/// This is a proposal of this project, and no KVM has it. A hint may be out of date, and a guest may write anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockHint {
    /// The holder's index plus 1, or 0.
    pub holder: u32,
    /// The index plus 1 of the waiter in front, or 0.
    pub waiter: u32,
}

impl StealTime {
    /// Returns a zeroed record.
    pub const fn new() -> StealTime {
        StealTime {
            steal: AtomicU64::new(0),
            version: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            preempted: AtomicU8::new(0),
            lock_holder: AtomicU32::new(0),
            lock_waiter: AtomicU32::new(0),
            reserved: [0; 9],
        }
    }

    /// Returns the hint in the record.
    pub fn lock_hint(&self) -> LockHint {
        LockHint {
            holder: self.lock_holder.load(Relaxed),
            waiter: self.lock_waiter.load(Relaxed),
        }
    }

    /// Writes `hint` to the record.
    pub fn set_lock_hint(&self, hint: LockHint) {
        self.lock_holder.store(hint.holder, Relaxed);
        self.lock_waiter.store(hint.waiter, Relaxed);
    }

    /// Bit 0 of `preempted` (`KVM_VCPU_PREEMPTED`): the host has preempted the vCPU.
    pub const PREEMPTED: u8 = 1;
    /// Bit 1 of `preempted` (`KVM_VCPU_FLUSH_TLB`): the guest asks for a TLB flush at the vCPU's next entry.
    pub const FLUSH_TLB: u8 = 2;
}

const _: () = assert!(size_of::<StealTime>() == 64);
