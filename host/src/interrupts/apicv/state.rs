//! APICv's state of a VM and of a vCPU: the PID-pointer table, the control structure and the descriptor.

use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_abi::Vmcs;
use holdfast_abi::posted::PidPointer;
use holdfast_abi::vmcs::InterruptStatus;

/// APICv of a VM: the PID-pointer table.
#[derive(Clone, Debug)]
pub(crate) struct VmApicv {
    /// An entry for each vCPU.
    pub(crate) pids: Vec<PidPointer>,
}

/// APICv of a vCPU.
#[derive(Debug)]
pub(crate) struct VcpuApicv {
    /// The interrupt fields of its control structure. Hardware changes the interrupt status in guest mode.
    pub(in crate::interrupts) vmcs: Cell<Vmcs>,
    /// The descriptor's posted vectors.
    pub(crate) pir: [AtomicU32; 8],
    /// The descriptor's control word.
    pub(crate) control: AtomicU64,
    /// APICv is on for the vCPU (`apicv_active`).
    pub(in crate::interrupts) active: bool,
    /// The pCPU on whose list of sleepers it is.
    pub(super) listed: Option<u32>,
}

impl VcpuApicv {
    /// Changes the guest interrupt status, as hardware does in guest mode.
    pub(crate) fn set_status(&self, status: InterruptStatus) {
        let before = self.vmcs.get();
        self.vmcs.set(Vmcs { status, ..before });
    }
}

/// A copy has a descriptor of its own.
impl Clone for VcpuApicv {
    fn clone(&self) -> VcpuApicv {
        let copy = VcpuApicv {
            vmcs: self.vmcs.clone(),
            pir: Default::default(),
            control: AtomicU64::new(self.control.load(Acquire)),
            active: self.active,
            listed: self.listed,
        };
        for (to, from) in copy.pir.iter().zip(&self.pir) {
            to.store(from.load(Acquire), Release);
        }
        copy
    }
}
