//! Devices behind the IOMMU: their interrupts, by way of the host or straight into guests (docs/spec/interrupts.md,
//! "IOMMU interrupts").
//!
//! A device of a guest starts with a remap entry for the host, whose handler signals the guest's message (vfio and
//! irqfd). While AVIC is on for the one vCPU that the message is for, the entry is in guest mode; it goes back when
//! AVIC is inhibited.
//!
//! - **Only what one vCPU takes**: messages that are not fixed, edge-triggered and for one vCPU go by way of the host.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{GA_LOG_ENTRIES, RemapEntry};
use holdfast_abi::lapic::DeliveryMode;

use super::devices::Device;
use super::remap::{self, Remap, Woken};
use crate::boundary::{Cost, VcpuId, VmId};
use crate::error::{ConfigError, in_range};
use crate::interrupts::InterruptWing;
use crate::interrupts::lapic::Message;
use crate::interrupts::memory::{self, HostMemory};
use crate::step::Step;

/// The host's vector of device 0; the others follow.
const FIRST_VECTOR: u8 = 0x30;
/// So many devices have vectors of the host's.
const DEVICES_MAX: i64 = 190;

impl InterruptWing<'_> {
    /// Adds a device, and returns its number, which is the number of its remap entry.
    ///
    /// # Errors
    /// Fails if there are too many devices.
    pub(crate) fn add_device(&mut self, record: Device) -> Result<u16, ConfigError> {
        let device = self.own.iommu.devices.len();
        in_range("devices", device as i64 + 1, 1, DEVICES_MAX)?;
        if self.own.iommu.log.is_empty() {
            self.own.iommu.log = (0..GA_LOG_ENTRIES).map(|_| AtomicU64::new(0)).collect();
        }
        self.own.iommu.devices.push(record);
        self.own.iommu.table.extend([AtomicU64::new(0), AtomicU64::new(0)]);
        let memory = self.memory();
        self.remap(&memory, device).write(self.by_host(device));
        Ok(device as u16)
    }

    /// Returns the entry of `device` by way of the host: devices are spread over the pCPUs, as irqbalance does it.
    fn by_host(&self, device: usize) -> RemapEntry {
        RemapEntry::legacy(
            FIRST_VECTOR + device as u8,
            (device % self.threads.sched.pcpus() as usize) as u32,
        )
    }

    fn remap<'h>(&self, memory: &'h HostMemory<'h>, device: usize) -> Remap<'h, HostMemory<'h>> {
        Remap {
            memory,
            address: memory::IOMMU.entry(device as u16),
            faults: self.config.avic.faults,
        }
    }

    /// Returns devices whose interrupts the IOMMU puts into the page of `vcpu`.
    fn posted_to(&self, vcpu: VcpuId) -> impl Iterator<Item = usize> {
        let is_posted = move |device_record: &Device| matches!(device_record, Device::Guest { posted, .. } if *posted == Some(vcpu));
        let devices = self.own.iommu.devices.iter().enumerate();
        devices
            .filter(move |(_, device_record)| is_posted(device_record))
            .map(|(device, _)| device)
    }

    /// Returns the remap entries of those.
    pub(super) fn iommu_entries<'h>(
        &'h self,
        memory: &'h HostMemory<'h>,
        vcpu: VcpuId,
    ) -> impl Iterator<Item = Remap<'h, HostMemory<'h>>> {
        self.posted_to(vcpu).map(move |device| self.remap(memory, device))
    }

    /// `vcpu` runs on `pcpu` from now on.
    pub(super) fn iommu_running(&self, vcpu: VcpuId, pcpu: u32) {
        let memory = self.memory();
        self.iommu_entries(&memory, vcpu).for_each(|entry| entry.running(pcpu));
    }

    /// `vcpu` does not run; `sleeps`: it is to be woken.
    pub(super) fn iommu_stopped(&self, vcpu: VcpuId, sleeps: bool) {
        let memory = self.memory();
        self.iommu_entries(&memory, vcpu)
            .for_each(|entry| entry.stopped(sleeps));
    }

    /// AVIC of `vcpu`, which is outside guest mode on `pcpu`, is switched on: devices' interrupts for it alone need no
    /// host (`avic_set_pi_irte_mode`, `amd_iommu_activate_guest_mode`).
    pub(super) fn iommu_activate(&mut self, vcpu: VcpuId, pcpu: u32) {
        let (vm, index) = (self.guests.vcpu_mut(vcpu).vm, self.guests.vcpu_mut(vcpu).index);
        for device in 0..self.own.iommu.devices.len() {
            let Device::Guest {
                vm: of, address, data, ..
            } = self.own.iommu.devices[device]
            else {
                continue;
            };
            let extended = self.guests.vms[vm].config.msi_ext_dest_id;
            let message = Message::of_msi(address, data, extended).filter(|_| of == vm);
            let Some(message) = message.filter(|message| self.can_post(vm, index, message)) else {
                continue;
            };
            self.set_posted(device, Some(vcpu));
            let tag = GaTag::new(self.guests.vms[vm].apic.avic().map_or(0, |avic| avic.number), index);
            let memory = self.memory();
            let entry = RemapEntry::guest(message.vector, memory::page_address(vcpu), tag);
            self.remap(&memory, device).write(entry.running(pcpu));
        }
    }

    /// Returns whether `message` is for the vCPU with `index` alone, and of a kind that the IOMMU can put into its
    /// page.
    fn can_post(&self, vm: VmId, index: u32, message: &Message) -> bool {
        message.mode == DeliveryMode::Fixed
            && !message.level
            && !message.has_illegal_vector()
            && self.only_recipient(vm, message) == Some(index)
    }

    fn set_posted(&mut self, device: usize, vcpu: Option<VcpuId>) {
        if let Device::Guest { posted, .. } = &mut self.own.iommu.devices[device] {
            *posted = vcpu;
        }
    }

    /// AVIC of `vcpu` is switched off: its devices' interrupts go by way of the host again. Before the look at IRR,
    /// which may hold what the IOMMU has put there.
    pub(super) fn iommu_deactivate(&mut self, vcpu: VcpuId) {
        let devices: Vec<usize> = self.posted_to(vcpu).collect();
        for device in devices {
            self.set_posted(device, None);
            let memory = self.memory();
            self.remap(&memory, device).write(self.by_host(device));
        }
    }

    /// A device's interrupt with the host's `vector` came to the executing pCPU. One that nobody has is spurious.
    pub(crate) fn device_interrupt(&mut self, vector: u8, step: &mut Step<'_>) {
        step.charge(Cost::HostInterrupt, 1);
        let device = usize::from(vector).checked_sub(usize::from(FIRST_VECTOR));
        match device.and_then(|device| self.own.iommu.devices.get(device)) {
            Some(&Device::Guest { vm, address, data, .. }) => self.msi(vm, address, data, step),
            Some(&Device::Wake(task)) => self.threads.wake_task(task, step),
            None => {}
        }
    }

    /// The log's interrupt came: wakes whom it names (`avic_ga_log_notifier`). If entries are missing, all who may be
    /// meant.
    pub(crate) fn ga_log_interrupt(&mut self, step: &mut Step<'_>) {
        step.charge(Cost::HostInterrupt, 1);
        let mut woken = Vec::new();
        let faults = self.config.avic.faults;
        remap::drain(&self.memory(), memory::IOMMU, faults, |whom| woken.push(whom));
        for whom in woken {
            match whom {
                Woken::Tagged(tag) => self.wake_tagged(tag, step),
                Woken::Everyone => {
                    for device_record in self.own.iommu.devices.clone() {
                        if let Device::Guest { posted: Some(vcpu), .. } = device_record {
                            self.guests.wake_up(vcpu, self.threads, step);
                        }
                    }
                }
            }
        }
    }

    /// Wakes the vCPU with `tag`, if there is one.
    fn wake_tagged(&mut self, tag: GaTag, step: &mut Step<'_>) {
        let Some(vm) = tag.vm().checked_sub(1).map(VmId) else {
            return;
        };
        let known = self.guests.vms.get(vm).is_some_and(|vm| tag.vcpu() < vm.vcpus);
        if known {
            let vcpu = self.guests.vcpu_id(vm, tag.vcpu());
            self.guests.vcpu_mut(vcpu).counters.avic_ga_log += 1;
            self.guests.wake_up(vcpu, self.threads, step);
        }
    }
}
