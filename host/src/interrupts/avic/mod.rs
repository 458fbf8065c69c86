//! AMD's AVIC, driven: tables, IsRunning, exits, and when it is on at all (docs/spec/interrupts.md, "AVIC tables").
//!
//! [`handshake`] has the memory operations that senders and receivers agree by, [`remap`] those of the IOMMU; the rest of this
//! folder says when they happen.
//!
//! - **Only what the VM has**: tables name the pages of their own VM's vCPUs, whatever the guest writes.
//! - **IsRunning means it** (`handshake`).

mod config;
mod deliver;
mod exits;
pub mod handshake;
mod ids;
mod inhibit;
pub(crate) mod iommu;
pub(crate) mod memory;
pub mod remap;
mod running;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_abi::avic::{LOGICAL_ENTRIES, PHYSICAL_MAX, PhysicalEntry, X2_PHYSICAL_MAX};
use holdfast_abi::{Vmcb, vmcb};

use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::vcpu::{Mode, Vcpu};
use handshake::{Presence, Tables};

pub use config::{AvicConfig, AvicEnable, SvmPart};
pub use inhibit::{Inhibit, Inhibits};
pub use memory::HostMemory;

/// AVIC of a VM.
#[derive(Debug)]
pub(crate) struct VmAvic {
    /// Its number in GA tags: from 1, no two alike.
    pub(crate) number: u32,
    /// The physical APIC ID table, an entry for each vCPU.
    physical: Box<[AtomicU64]>,
    /// The logical APIC ID table.
    logical: Box<[AtomicU32]>,
}

impl VmAvic {
    fn new(number: u32, vcpus: u32) -> VmAvic {
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
    /// `apicv_active`.
    active: Cell<bool>,
    /// Between the blocking and the unblocking hook.
    pub(crate) blocking: bool,
    /// It runs a guest of its own: off for it alone.
    nested: bool,
}

/// A vCPU as others see it.
struct Seen<'h>(&'h Vcpu);

impl Presence for Seen<'_> {
    fn is_in_guest(&self) -> bool {
        self.0.mode.get() == Mode::InGuest
    }
    fn set_in_guest(&self) {
        self.0.mode.set(Mode::InGuest);
    }
    fn claim_exit(&self) -> bool {
        let claimed = self.is_in_guest();
        if claimed {
            self.0.mode.set(Mode::Exiting);
        }
        claimed
    }
    fn is_active(&self) -> bool {
        self.0.avic.as_ref().is_some_and(|avic| avic.active.get())
    }
    fn set_active(&self, active: bool) {
        if let Some(avic) = &self.0.avic {
            avic.active.set(active);
        }
    }
    fn has_request(&self) -> bool {
        self.0.requests.any()
    }
    fn cpu(&self) -> Option<u32> {
        self.0.cpu
    }
}

impl Host {
    /// Memory as AVIC's hardware sees it.
    #[inline]
    pub fn memory(&self) -> HostMemory<'_> {
        HostMemory(self)
    }

    /// The control block of `vcpu`, as far as it concerns interrupts; `None` if its VM has no AVIC.
    ///
    /// # Panics
    /// If there is no such vCPU.
    #[inline]
    pub fn vmcb(&self, vcpu: VcpuId) -> Option<&Vmcb> {
        self.vcpus[vcpu.0 as usize].avic.as_ref().map(|avic| &avic.vmcb)
    }

    /// Whether hardware virtualises the LAPIC of `vcpu` at present.
    ///
    /// # Panics
    /// If there is no such vCPU.
    #[inline]
    pub fn is_avic_active(&self, vcpu: VcpuId) -> bool {
        Seen(&self.vcpus[vcpu.0 as usize]).is_active()
    }

    /// Gives `vm`, which has just been added, AVIC if the host uses it (`avic_vm_init`, `avic_init_vcpu`).
    pub(crate) fn avic_init_vm(&mut self, vm: VmId) {
        let config = self.config.avic;
        if !config.is_used() {
            return;
        }
        let this = &mut self.vms[vm.0 as usize];
        let vcpus = this.vcpus;
        this.inhibits.set(Inhibit::Disabled, !this.config.avic);
        let max = if config.uses_x2avic() {
            X2_PHYSICAL_MAX
        } else {
            PHYSICAL_MAX
        };
        this.inhibits.set(Inhibit::PhysicalIdTooBig, vcpus - 1 > max);
        this.avic = Some(VmAvic::new(vm.0 + 1, vcpus));
        let ids: Vec<VcpuId> = self.vcpus(vm).collect();
        for vcpu in ids {
            self.avic_init_vcpu(vm, vcpu, (vcpus - 1).min(max));
        }
    }

    fn avic_init_vcpu(&mut self, vm: VmId, vcpu: VcpuId, max_index: u32) {
        let mut control = Vmcb::new();
        control.write64(vmcb::AVIC_BACKING_PAGE, memory::page_address(vcpu));
        control.write64(vmcb::AVIC_LOGICAL_TABLE, memory::logical_table_address(vm));
        let physical = memory::physical_table_address(vm) | u64::from(max_index);
        control.write64(vmcb::AVIC_PHYSICAL_TABLE, physical);
        control.write64(vmcb::AVIC_APIC_BAR, holdfast_abi::msr::APIC_BASE_ADDRESS);
        let at = self.at(vcpu);
        at.avic = Some(Box::new(VcpuAvic {
            vmcb: control,
            active: Cell::new(false),
            blocking: false,
            nested: false,
        }));
        at.requests.apicv_update = true;
        let index = at.index;
        if let Some(avic) = &self.vms[vm.0 as usize].avic
            && index <= max_index
        {
            let entry = PhysicalEntry::new(memory::page_address(vcpu));
            avic.physical[index as usize].store(entry.0, Release);
        }
    }

    /// Backing page and table entry of `vcpu`.
    pub(crate) fn avic_tables<'h>(&self, memory: &'h HostMemory<'h>, vcpu: VcpuId) -> Tables<'h, HostMemory<'h>> {
        let at = &self.vcpus[vcpu.0 as usize];
        Tables {
            memory,
            page: memory::page_address(vcpu),
            entry: memory::physical_table_address(at.vm) + u64::from(at.index) * PhysicalEntry::BYTES,
            ipiv: self.config.avic.ipiv(),
            faults: self.config.avic.faults,
        }
    }
}
