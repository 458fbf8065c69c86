//! What virtualizes a LAPIC: software, or the hardware of one of the two vendors.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Acquire;

use holdfast_abi::posted::Control;

use super::apicv::{VcpuApicv, VmApicv};
use super::avic::{VcpuAvic, VmAvic};

/// What virtualizes the LAPICs of a VM, with the tables that hardware reads.
#[derive(Clone, Debug, Default)]
pub(crate) enum VmApic {
    /// Software alone.
    #[default]
    Emulated,
    /// AMD's AVIC.
    Avic(VmAvic),
    /// Intel's APICv with posted interrupts.
    Apicv(VmApicv),
}

impl VmApic {
    /// Returns whether the host uses hardware for the VM. Inhibit reasons may still keep it off.
    pub(crate) fn is_hardware(&self) -> bool {
        !matches!(self, VmApic::Emulated)
    }

    pub(super) fn avic(&self) -> Option<&VmAvic> {
        let VmApic::Avic(avic) = self else { return None };
        Some(avic)
    }

    pub(super) fn apicv(&self) -> Option<&VmApicv> {
        let VmApic::Apicv(apicv) = self else { return None };
        Some(apicv)
    }
}

/// What virtualizes the LAPIC of a vCPU, with the control structure that hardware reads.
#[derive(Clone, Debug)]
pub(crate) enum VcpuApic {
    /// Software alone.
    Emulated,
    /// AMD's AVIC.
    Avic(Box<VcpuAvic>),
    /// Intel's APICv with posted interrupts.
    Apicv(Box<VcpuApicv>),
}

impl VcpuApic {
    /// Returns whether hardware may set IRR without software.
    pub(crate) fn is_hardware(&self) -> bool {
        !matches!(self, VcpuApic::Emulated)
    }

    /// Returns whether hardware virtualizes the LAPIC at present.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        match self {
            VcpuApic::Emulated => false,
            VcpuApic::Avic(avic) => avic.active.get(),
            VcpuApic::Apicv(apicv) => apicv.active,
        }
    }

    /// Returns whether hardware kept CR8 and the task priority in line in the guest mode that has just ended.
    pub(crate) fn keeps_cr8(&self) -> bool {
        match self {
            VcpuApic::Emulated => false,
            VcpuApic::Avic(avic) => avic.vmcb.has_avic(),
            VcpuApic::Apicv(apicv) => apicv.active,
        }
    }

    /// Returns whether an interrupt is posted that has not reached IRR.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self, VcpuApic::Apicv(apicv) if Control(apicv.control.load(Acquire)).is_on())
    }

    #[inline]
    pub(super) fn avic(&self) -> Option<&VcpuAvic> {
        let VcpuApic::Avic(avic) = self else { return None };
        Some(avic)
    }

    pub(super) fn avic_mut(&mut self) -> Option<&mut VcpuAvic> {
        let VcpuApic::Avic(avic) = self else { return None };
        Some(avic)
    }

    #[inline]
    pub(super) fn apicv(&self) -> Option<&VcpuApicv> {
        let VcpuApic::Apicv(apicv) = self else { return None };
        Some(apicv)
    }

    pub(super) fn apicv_mut(&mut self) -> Option<&mut VcpuApicv> {
        let VcpuApic::Apicv(apicv) = self else { return None };
        Some(apicv)
    }
}
