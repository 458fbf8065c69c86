//! APICv's control structures and descriptors when a VM is added.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use holdfast_abi::Vmcs;
use holdfast_abi::posted::{Control, NOTIFICATION_VECTOR, PidPointer};

use super::posting::{Descriptor, PostingFaults};
use super::state::{VcpuApicv, VmApicv};
use crate::boundary::{VcpuId, VmId};
use crate::interrupts::memory::{self, HostMemory};
use crate::interrupts::{VcpuApic, VmApic};
use crate::wings::Wings;

/// Gives `vm`, which has just been added, APICv.
pub(crate) fn init_vm(on: &mut Wings, vm: VmId) {
    let vcpus: Vec<VcpuId> = on.guests.vcpus_of(vm).collect();
    let pids: Vec<PidPointer> = vcpus
        .iter()
        .map(|&vcpu| PidPointer::new(memory::descriptor_address(vcpu)))
        .collect();
    let last = u16::try_from(pids.len() - 1).unwrap_or(u16::MAX);
    for vcpu in vcpus {
        let control = Vmcs {
            virtual_apic_page: memory::page_address(vcpu),
            descriptor: memory::descriptor_address(vcpu),
            notification_vector: NOTIFICATION_VECTOR,
            pid_table: memory::pid_table_address(vm),
            last_pid_index: last,
            ..Vmcs::default()
        };
        on.guests.vcpus[vcpu].requests.apic_update = true;
        on.guests.vcpus[vcpu].virtualization = VcpuApic::Apicv(Box::new(VcpuApicv {
            vmcs: Cell::new(control),
            pir: Default::default(),
            control: AtomicU64::new(Control::new(NOTIFICATION_VECTOR, 0).0),
            active: false,
            listed: None,
        }));
    }
    on.guests.vms[vm].apic = VmApic::Apicv(VmApicv { pids });
}

/// Returns the descriptor of `vcpu`.
pub(super) fn descriptor<'h>(on: &Wings, memory: &'h HostMemory<'h>, vcpu: VcpuId) -> Descriptor<'h, HostMemory<'h>> {
    Descriptor::of(memory, vcpu, on.guests.planted.posting)
}

impl<'h> Descriptor<'h, HostMemory<'h>> {
    /// Returns the descriptor of `vcpu`.
    pub(in crate::interrupts) fn of(memory: &'h HostMemory<'h>, vcpu: VcpuId, faults: PostingFaults) -> Self {
        Descriptor {
            memory,
            address: memory::descriptor_address(vcpu),
            faults,
        }
    }
}
