//! AVIC's state of a VM and of a vCPU: the tables and the control block that hardware reads.

use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_abi::Vmcb;
use holdfast_abi::avic::LOGICAL_ENTRIES;

/// AVIC of a VM.
#[derive(Debug)]
pub(crate) struct VmAvic {
    /// Its number in GA tags: unique, and at least 1.
    pub(crate) number: u32,
    /// The physical APIC ID table, an entry for each vCPU.
    pub(in crate::interrupts) physical: Box<[AtomicU64]>,
    /// The logical APIC ID table.
    pub(in crate::interrupts) logical: Box<[AtomicU32]>,
}

impl VmAvic {
    pub(super) fn new(number: u32, vcpus: u32) -> VmAvic {
        VmAvic {
            number,
            physical: (0..vcpus).map(|_| AtomicU64::new(0)).collect(),
            logical: (0..LOGICAL_ENTRIES).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

/// A copy has tables of its own.
impl Clone for VmAvic {
    fn clone(&self) -> VmAvic {
        let copy = VmAvic::new(self.number, self.physical.len() as u32);
        for (to, from) in copy.physical.iter().zip(&self.physical) {
            to.store(from.load(Acquire), Release);
        }
        for (to, from) in copy.logical.iter().zip(&self.logical) {
            to.store(from.load(Acquire), Release);
        }
        copy
    }
}

/// AVIC of a vCPU.
#[derive(Clone, Debug)]
pub(crate) struct VcpuAvic {
    /// The fields of its control block that concern interrupts.
    pub(crate) vmcb: Vmcb,
    /// AVIC is on for the vCPU (`apicv_active`).
    pub(in crate::interrupts) active: Cell<bool>,
    /// The vCPU is between the blocking and the unblocking hook.
    pub(crate) blocking: bool,
}
