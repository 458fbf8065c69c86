//! AVIC's tables and control blocks when a VM is added (`avic_vm_init`, `avic_init_vcpu`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::Release;

use holdfast_abi::avic::PhysicalEntry;
use holdfast_abi::{Vmcb, cpuid, vmcb};

use super::handshake::Tables;
use super::state::{VcpuAvic, VmAvic};
use crate::boundary::{VcpuId, VmId};
use crate::interrupts::memory::{self, HostMemory};
use crate::interrupts::{Inhibit, VcpuApic, VmApic};
use crate::wings::Wings;

/// Gives `vm`, which has just been added, AVIC (`avic_vm_init`, `avic_init_vcpu`).
pub(crate) fn init_vm(on: &mut Wings, vm: VmId) {
    let config = on.config.avic;
    let this = &mut on.guests.vms[vm];
    let vcpus = this.vcpus;
    let max = config.max_id();
    let too_big = vcpus - 1 > max || this.config.apic_inhibits.has(Inhibit::PhysicalIdTooBig);
    this.inhibits.set(Inhibit::PhysicalIdTooBig, too_big);
    this.apic = VmApic::Avic(VmAvic::new(vm.0 + 1, vcpus));
    let ids: Vec<VcpuId> = on.guests.vcpus_of(vm).collect();
    for vcpu in ids {
        init_vcpu(on, vm, vcpu, (vcpus - 1).min(max));
    }
}

fn init_vcpu(on: &mut Wings, vm: VmId, vcpu: VcpuId, max_index: u32) {
    let mut control = Vmcb::new();
    control.write64(vmcb::AVIC_BACKING_PAGE, memory::page_address(vcpu));
    control.write64(vmcb::AVIC_LOGICAL_TABLE, memory::logical_table_address(vm));
    let physical = memory::physical_table_address(vm) | u64::from(max_index);
    control.write64(vmcb::AVIC_PHYSICAL_TABLE, physical);
    control.write64(vmcb::AVIC_APIC_BAR, holdfast_abi::msr::APIC_BASE_ADDRESS);
    if on.config.idle_hlt && on.config.avic.part.features & cpuid::SVM_IDLE_HLT != 0 {
        control.write32(vmcb::INTERCEPT_MORE, vmcb::INTERCEPT_IDLE_HLT);
    }
    let at = &mut on.guests.vcpus[vcpu];
    at.virtualization = VcpuApic::Avic(Box::new(VcpuAvic {
        vmcb: control,
        active: Cell::new(false),
        blocking: false,
    }));
    at.requests.apic_update = true;
    let index = at.index;
    if let Some(avic) = on.guests.vms[vm].apic.avic()
        && index <= max_index
    {
        let entry = PhysicalEntry::new(memory::page_address(vcpu));
        avic.physical[index as usize].store(entry.0, Release);
    }
}

/// Returns the backing page and the table entry of `vcpu`.
pub(crate) fn tables<'h>(on: &Wings, memory: &'h HostMemory<'h>, vcpu: VcpuId) -> Tables<'h, HostMemory<'h>> {
    let at = &on.guests.vcpus[vcpu];
    Tables {
        memory,
        page: memory::page_address(vcpu),
        entry: memory::physical_table_address(at.vm) + u64::from(at.index) * PhysicalEntry::BYTES,
        ipiv: on.config.avic.ipiv(),
        driver: on.config.avic.driver,
        faults: on.guests.planted.avic,
    }
}
