//! Intel's APICv, posted interrupts and IPI virtualization, driven (docs/spec/interrupts.md, "APICv").
//!
//! [`posting`] has the memory operations that senders and receivers agree by; the rest of this folder says when they happen.
//!
//! Against AVIC (`host/src/avic`): the virtual-APIC page is the vCPU's alone, others write its descriptor; what is posted gets
//! into the page when the vCPU enters, or by the notification; x2APIC is offered all the same; and no sender ever exits
//! because a target does not run.
//!
//! - **RVI and SVI are the page's**: both are set anew at each entry, after what was posted has been moved to the page.
//! - **Only what the VM has**: the PID-pointer table names the descriptors of the VM's own vCPUs.

mod config;
mod deliver;
mod exits;
pub mod posting;
mod running;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_abi::posted::{Control, NOTIFICATION_VECTOR, PidPointer};
use holdfast_abi::vmcs::InterruptStatus;
use holdfast_abi::{Vmcs, vmcs};

use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::interrupts::avic::memory::{self, HostMemory};
use posting::Descriptor;

pub use config::{ApicvConfig, VmxPart};

/// APIC virtualization of a VM: the PID-pointer table.
#[derive(Clone, Debug)]
pub(crate) struct VmApicv {
    /// An entry for each vCPU.
    pub(crate) pids: Vec<PidPointer>,
}

/// APIC virtualization of a vCPU.
#[derive(Debug)]
pub(crate) struct VcpuApicv {
    /// The fields of its control structure that concern interrupts. Hardware changes the interrupt status in guest mode.
    vmcs: Cell<Vmcs>,
    /// The descriptor's posted vectors.
    pub(crate) pir: [AtomicU32; 8],
    /// The descriptor's control word.
    pub(crate) control: AtomicU64,
    /// `apicv_active`.
    active: bool,
    /// The pCPU on whose list of sleepers it is.
    listed: Option<u32>,
}

impl VcpuApicv {
    /// Whether it is on.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether something is posted that nobody has looked at.
    pub(crate) fn is_posted(&self) -> bool {
        Control(self.control.load(Acquire)).is_on()
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

impl Host {
    /// The control structure of `vcpu`, as far as it concerns interrupts; `None` if its VM has no APICv.
    ///
    /// # Panics
    /// If there is no such vCPU.
    #[inline]
    pub fn vmcs(&self, vcpu: VcpuId) -> Option<Vmcs> {
        self.vcpus[vcpu.0 as usize].apicv.as_ref().map(|apicv| apicv.vmcs.get())
    }

    /// Hardware, in guest mode, has changed the guest interrupt status of `vcpu`.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn set_guest_interrupt_status(&self, vcpu: VcpuId, status: InterruptStatus) {
        if let Some(apicv) = &self.vcpus[vcpu.0 as usize].apicv {
            apicv.vmcs.set(Vmcs {
                status,
                ..apicv.vmcs.get()
            });
        }
    }

    /// Whether hardware virtualises the LAPIC of `vcpu` at present, Intel's way.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn is_apicv_active(&self, vcpu: VcpuId) -> bool {
        self.vcpus[vcpu.0 as usize]
            .apicv
            .as_ref()
            .is_some_and(|apicv| apicv.active)
    }

    /// Gives `vm`, which has just been added, APICv if the host uses it.
    pub(crate) fn apicv_init_vm(&mut self, vm: VmId) {
        let config = self.config.apicv;
        if !config.is_used() || !self.vms[vm.0 as usize].config.apicv {
            return;
        }
        let vcpus: Vec<VcpuId> = self.vcpus(vm).collect();
        let pids: Vec<PidPointer> = vcpus
            .iter()
            .map(|&vcpu| PidPointer::new(memory::descriptor_address(vcpu)))
            .collect();
        let last = u16::try_from(pids.len() - 1).unwrap_or(u16::MAX);
        for vcpu in vcpus {
            let control = Vmcs {
                pin: vmcs::PIN_POSTED_INTERRUPTS,
                tertiary: if config.sends() { vmcs::IPI_VIRTUALIZATION } else { 0 },
                virtual_apic_page: memory::page_address(vcpu),
                descriptor: memory::descriptor_address(vcpu),
                notification_vector: NOTIFICATION_VECTOR,
                pid_table: memory::pid_table_address(vm),
                last_pid_index: last,
                ..Vmcs::default()
            };
            self.at(vcpu).requests.apicv_update = true;
            self.at(vcpu).apicv = Some(Box::new(VcpuApicv {
                vmcs: Cell::new(control),
                pir: Default::default(),
                control: AtomicU64::new(Control::new(NOTIFICATION_VECTOR, 0).0),
                active: false,
                listed: None,
            }));
        }
        self.vms[vm.0 as usize].apicv = Some(VmApicv { pids });
    }

    /// Whether `vector` is posted for `vcpu`, and not in IRR yet; not so if there is no such vCPU, or hardware posts nothing for it.
    pub fn has_posted(&self, vcpu: VcpuId, vector: u8) -> bool {
        self.descriptor(&HostMemory(self), vcpu).holds(vector)
    }

    /// The descriptor of `vcpu`.
    fn descriptor<'h>(&self, memory: &'h HostMemory<'h>, vcpu: VcpuId) -> Descriptor<'h, HostMemory<'h>> {
        Descriptor {
            memory,
            address: memory::descriptor_address(vcpu),
            faults: self.config.apicv.faults,
        }
    }
}
