//! What the hardware under a host reads and changes: its memory, control structures, the IOMMU's devices, inhibit
//! reasons.

use alloc::sync::Arc;

use holdfast_abi::iommu::Layout;
use holdfast_abi::vmcs::InterruptStatus;
use holdfast_abi::{Vmcb, Vmcs, lapic as reg, msr};

use super::apicv::posting::Descriptor;
use super::avic::Device;
use super::lapic::RegisterPage;
use super::memory::{self, HostMemory};
use super::{Inhibits, apicv};
use crate::boundary::{TaskId, VcpuId, VmId};
use crate::error::ConfigError;
use crate::host::Host;
use crate::interrupts;

impl Host {
    /// Where the registers and tables of the IOMMU lie in [`Host::memory`].
    pub const IOMMU: Layout = memory::IOMMU;

    /// Returns host-physical memory as interrupt hardware sees it.
    #[inline]
    pub fn memory(&self) -> HostMemory<'_> {
        self.wings.memory()
    }

    /// Returns the register page of the LAPIC of `vcpu`. A vCPU keeps the same page for its whole life. Under AVIC it
    /// is the backing page.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn apic_page(&self, vcpu: VcpuId) -> &Arc<RegisterPage> {
        self.wings.guests.vcpus[vcpu].apic.registers()
    }

    /// Returns the interrupt fields of the control block of `vcpu`, or `None` if its VM has no AVIC.
    ///
    /// # Panics
    /// If there is no such vCPU.
    #[inline]
    pub fn vmcb(&self, vcpu: VcpuId) -> Option<&Vmcb> {
        self.wings.guests.vcpus[vcpu]
            .virtualization
            .avic()
            .map(|avic| &avic.vmcb)
    }

    /// Returns the interrupt fields of the control structure of `vcpu`, or `None` if its VM has no APICv.
    ///
    /// # Panics
    /// If there is no such vCPU.
    #[inline]
    pub fn vmcs(&self, vcpu: VcpuId) -> Option<Vmcs> {
        self.wings.guests.vcpus[vcpu]
            .virtualization
            .apicv()
            .map(|apicv| apicv.vmcs.get())
    }

    /// Stores the guest interrupt status of `vcpu`, which APICv changed in guest mode.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn set_guest_interrupt_status(&self, vcpu: VcpuId, status: InterruptStatus) {
        if let Some(apicv) = self.wings.guests.hardware(vcpu).apicv() {
            apicv.set_status(status);
        }
    }

    /// Returns whether `vector` is posted for `vcpu` and not in IRR yet. Returns `false` if there is no such vCPU, or
    /// no hardware that posts interrupts for it.
    pub fn has_posted(&self, vcpu: VcpuId, vector: u8) -> bool {
        Descriptor::of(&self.memory(), vcpu, self.wings.guests.planted.posting).holds(vector)
    }

    /// Moves interrupts that hardware posted for `vcpu` into its register page, for saving.
    pub(crate) fn gather_posted(&self, vcpu: VcpuId) {
        apicv::running::save(&self.memory(), vcpu, self.wings.guests.planted.posting);
    }

    /// Returns the offset of the LAPIC register behind `msr` of `vcpu` if an access goes to the virtualizing hardware
    /// (KVM's MSR bitmaps), or `None` if it exits.
    ///
    /// AVIC passes all but the LVT timer register, whose deadline mode the hardware does not know. APICv passes the
    /// writes that it virtualizes.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn passes_msr(&self, vcpu: VcpuId, msr: u32, write: bool) -> Option<u32> {
        if !(msr::X2APIC_BASE..=msr::X2APIC_LAST).contains(&msr) || !self.wings.guests.vcpus[vcpu].apic.is_x2apic() {
            return None;
        }
        let offset = (msr - msr::X2APIC_BASE) * reg::STRIDE;
        let absent = matches!(offset, reg::DFR | reg::ICR_HIGH) || offset >= 0x400;
        let hardware = self.wings.guests.hardware(vcpu);
        let avic = hardware.avic().is_some_and(|avic| avic.active.get());
        let apicv = hardware.apicv().is_some_and(|apicv| apicv.active);
        // In x2APIC mode without x2AVIC all accesses are the host's ("hybrid").
        let passes = if avic && !self.wings.config.avic.uses_x2avic() {
            false
        } else if avic {
            let own = matches!(offset, reg::RRD | reg::LVT_TIMER | reg::SELF_IPI);
            !(own || write && matches!(offset, reg::ID | reg::LDR))
        } else if apicv && write {
            matches!(offset, reg::TPR | reg::EOI | reg::SELF_IPI)
                || offset == reg::ICR_LOW && self.wings.config.apicv.sends()
        } else {
            apicv && !matches!(offset, reg::EOI | reg::SELF_IPI)
        };
        (passes && !absent).then_some(offset)
    }

    /// Returns whether the guest's LAPIC page is mapped for hardware that virtualizes it. It is not for a vCPU in
    /// x2APIC mode under AVIC: an access is one to an address without a device (`kvm_inhibit_apic_access_page`).
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn maps_apic_page(&self, vcpu: VcpuId) -> bool {
        let at = &self.wings.guests.vcpus[vcpu];
        at.virtualization.avic().is_none() || !at.apic.is_x2apic()
    }

    /// Returns why hardware does not virtualize the LAPICs of `vm`, or `None` if the host uses no such hardware for it.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn apic_inhibits(&self, vm: VmId) -> Option<Inhibits> {
        let vm = &self.wings.guests.vms[vm];
        vm.apic.is_hardware().then_some(vm.inhibits)
    }

    /// Assigns a device to `vm` (vfio). Its one interrupt is `data` at `address`, as the guest has set it up. Returns
    /// the device's number, which is the number of its remap entry.
    ///
    /// # Errors
    /// Fails if there are too many devices, or the host runs.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn assign_device(&mut self, vm: VmId, address: u64, data: u32) -> Result<u16, ConfigError> {
        assert!(
            self.wings.guests.vms.get(vm).is_some(),
            "cannot assign a device to vm {}: no such vm",
            vm.0
        );
        self.add_device(Device::Guest {
            vm,
            address,
            data,
            posted: None,
        })
    }

    /// Adds a device of the host whose interrupt wakes `task`. Returns the device's number.
    ///
    /// # Errors
    /// Fails as [`Host::assign_device`] does.
    pub fn own_device(&mut self, task: TaskId) -> Result<u16, ConfigError> {
        self.add_device(Device::Wake(task))
    }

    fn add_device(&mut self, device: Device) -> Result<u16, ConfigError> {
        self.check_not_started()?;
        interrupts::add_device(&mut self.wings, device)
    }

    /// Makes a write of `vm` to `port` wake `task`, the thread of a device (ioeventfd).
    ///
    /// # Panics
    /// If there is no such VM, or the task is a vCPU's thread.
    pub fn add_doorbell(&mut self, vm: VmId, port: u16, task: TaskId) {
        self.wings.threads.check_plain(task);
        self.wings.guests.vms[vm].doorbells.push((port, task));
    }
}
