//! Devices behind the IOMMU: their interrupts, by way of the host or straight into guests
//! (docs/spec/interrupts.md, "IOMMU interrupts").
//!
//! A device of a guest starts with a remap entry for the host, whose handler signals the guest's message (vfio and irqfd). While
//! AVIC is on for the one vCPU that the message is for, the entry is in guest mode; it goes back when AVIC is inhibited.
//!
//! - **Only what one vCPU takes**: messages that are not fixed, edge-triggered and for one vCPU go by way of the host.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{GA_LOG_ENTRIES, Layout, RemapEntry};
use holdfast_abi::lapic::DeliveryMode;

use super::memory::{self, HostMemory};
use super::remap::{self, Remap, Woken};
use crate::boundary::{Cost, TaskId, VcpuId, VmId};
use crate::error::{ConfigError, in_range};
use crate::host::Host;
use crate::interrupts::lapic::Message;
use crate::step::Step;

/// The host's vector of device 0; the others follow.
const FIRST_VECTOR: u8 = 0x30;
/// So many devices have vectors of the host's.
const DEVICES_MAX: i64 = 190;

/// What the host does when a device's interrupt comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// Signals a guest's message.
    Guest {
        vm: VmId,
        address: u64,
        data: u32,
        /// The vCPU into whose page the IOMMU puts it at present.
        posted: Option<VcpuId>,
    },
    /// Wakes a thread.
    Wake(TaskId),
}

/// What host and IOMMU share: registers, log and table; and what the host knows of the devices.
#[derive(Debug, Default)]
pub(crate) struct Iommu {
    pub(crate) status: AtomicU64,
    pub(crate) head: AtomicU64,
    pub(crate) tail: AtomicU64,
    /// There once a device is.
    pub(crate) log: Vec<AtomicU64>,
    /// Two words for each device.
    pub(crate) table: Vec<AtomicU64>,
    handlers: Vec<Handler>,
}

/// A copy has memory of its own.
impl Clone for Iommu {
    fn clone(&self) -> Iommu {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        Iommu {
            status: copy(&self.status),
            head: copy(&self.head),
            tail: copy(&self.tail),
            log: self.log.iter().map(copy).collect(),
            table: self.table.iter().map(copy).collect(),
            handlers: self.handlers.clone(),
        }
    }
}

impl Host {
    /// Where registers and tables of the IOMMU lie in [`Host::memory`].
    pub const IOMMU: Layout = memory::IOMMU;

    /// Assigns a device to `vm` (vfio). Its one interrupt is `data` at `address`, as the guest has set it up. Returns the device's
    /// number, which is its remap entry's.
    ///
    /// # Errors
    /// Too many devices, or a host that runs.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn assign_device(&mut self, vm: VmId, address: u64, data: u32) -> Result<u16, ConfigError> {
        assert!((vm.0 as usize) < self.vms.len(), "there is no vm {}", vm.0);
        self.add_device(Handler::Guest {
            vm,
            address,
            data,
            posted: None,
        })
    }

    /// Adds a device of the host's own whose interrupt wakes `task`. Returns the device's number.
    ///
    /// # Errors
    /// As [`Host::assign_device`].
    pub fn own_device(&mut self, task: TaskId) -> Result<u16, ConfigError> {
        self.add_device(Handler::Wake(task))
    }

    fn add_device(&mut self, handler: Handler) -> Result<u16, ConfigError> {
        self.check_not_started()?;
        let device = self.iommu.handlers.len();
        in_range("devices", device as i64 + 1, 1, DEVICES_MAX)?;
        if self.iommu.log.is_empty() {
            self.iommu.log = (0..GA_LOG_ENTRIES).map(|_| AtomicU64::new(0)).collect();
        }
        self.iommu.handlers.push(handler);
        self.iommu.table.extend([AtomicU64::new(0), AtomicU64::new(0)]);
        let memory = HostMemory(self);
        self.remap(&memory, device).write(self.by_host(device));
        Ok(device as u16)
    }

    /// The entry of `device` by way of the host: devices are spread over the pCPUs, as irqbalance does it.
    fn by_host(&self, device: usize) -> RemapEntry {
        RemapEntry::legacy(FIRST_VECTOR + device as u8, (device % self.pcpus.len()) as u32)
    }

    fn remap<'h>(&self, memory: &'h HostMemory<'h>, device: usize) -> Remap<'h, HostMemory<'h>> {
        Remap {
            memory,
            address: Host::IOMMU.entry(device as u16),
            faults: self.config.avic.faults,
        }
    }

    /// Devices whose interrupts the IOMMU puts into the page of `vcpu`.
    fn posted_to(&self, vcpu: VcpuId) -> impl Iterator<Item = usize> {
        let is_posted =
            move |handler: &Handler| matches!(handler, Handler::Guest { posted, .. } if *posted == Some(vcpu));
        let devices = self.iommu.handlers.iter().enumerate();
        devices
            .filter(move |(_, handler)| is_posted(handler))
            .map(|(device, _)| device)
    }

    /// The remap entries of those.
    pub(super) fn iommu_entries<'h>(
        &'h self,
        memory: &'h HostMemory<'h>,
        vcpu: VcpuId,
    ) -> impl Iterator<Item = Remap<'h, HostMemory<'h>>> {
        self.posted_to(vcpu).map(move |device| self.remap(memory, device))
    }

    /// `vcpu` runs on `pcpu` from now on.
    pub(super) fn iommu_running(&self, vcpu: VcpuId, pcpu: u32) {
        let memory = HostMemory(self);
        self.iommu_entries(&memory, vcpu).for_each(|entry| entry.running(pcpu));
    }

    /// `vcpu` does not run; `sleeps`: it is to be woken.
    pub(super) fn iommu_stopped(&self, vcpu: VcpuId, sleeps: bool) {
        let memory = HostMemory(self);
        self.iommu_entries(&memory, vcpu)
            .for_each(|entry| entry.stopped(sleeps));
    }

    /// AVIC of `vcpu`, which is outside guest mode on `pcpu`, is switched on: devices' interrupts for it alone need no host
    /// (`avic_set_pi_irte_mode`, `amd_iommu_activate_guest_mode`).
    pub(super) fn iommu_activate(&mut self, vcpu: VcpuId, pcpu: u32) {
        let (vm, index) = (self.at(vcpu).vm, self.at(vcpu).index);
        for device in 0..self.iommu.handlers.len() {
            let Handler::Guest {
                vm: of, address, data, ..
            } = self.iommu.handlers[device]
            else {
                continue;
            };
            let extended = self.vms[vm.0 as usize].config.msi_ext_dest_id;
            let message = Message::of_msi(address, data, extended).filter(|_| of == vm);
            let Some(message) = message.filter(|message| self.can_post(vm, index, message)) else {
                continue;
            };
            self.set_posted(device, Some(vcpu));
            let tag = GaTag::new(
                self.vms[vm.0 as usize].avic.as_ref().map_or(0, |avic| avic.number),
                index,
            );
            let memory = HostMemory(self);
            let entry = RemapEntry::guest(message.vector, memory::page_address(vcpu), tag);
            self.remap(&memory, device).write(entry.running(pcpu));
        }
    }

    /// Whether `message` is for the vCPU with `index` alone, and of a kind that the IOMMU can put into its page.
    fn can_post(&self, vm: VmId, index: u32, message: &Message) -> bool {
        message.mode == DeliveryMode::Fixed
            && !message.level
            && !message.has_illegal_vector()
            && self.only_recipient(vm, message) == Some(index)
    }

    fn set_posted(&mut self, device: usize, vcpu: Option<VcpuId>) {
        if let Handler::Guest { posted, .. } = &mut self.iommu.handlers[device] {
            *posted = vcpu;
        }
    }

    /// AVIC of `vcpu` is switched off: its devices' interrupts go by way of the host again. Before the look at IRR, which may
    /// hold what the IOMMU has put there.
    pub(super) fn iommu_deactivate(&mut self, vcpu: VcpuId) {
        let devices: Vec<usize> = self.posted_to(vcpu).collect();
        for device in devices {
            self.set_posted(device, None);
            let memory = HostMemory(self);
            self.remap(&memory, device).write(self.by_host(device));
        }
    }

    /// A device's interrupt with the host's `vector` came to the executing pCPU. One that nobody has is spurious.
    pub(crate) fn device_interrupt(&mut self, vector: u8, step: &mut Step<'_>) {
        step.charge(Cost::HostInterrupt, 1);
        let device = usize::from(vector).checked_sub(usize::from(FIRST_VECTOR));
        match device.and_then(|device| self.iommu.handlers.get(device)) {
            Some(&Handler::Guest { vm, address, data, .. }) => self.msi(vm, address, data, step),
            Some(&Handler::Wake(task)) => self.wake_task(task, step),
            None => {}
        }
    }

    /// The log's interrupt came: wakes whom it names (`avic_ga_log_notifier`). If entries are missing, all who may be meant.
    pub(crate) fn ga_log_interrupt(&mut self, step: &mut Step<'_>) {
        step.charge(Cost::HostInterrupt, 1);
        let mut woken = Vec::new();
        let faults = self.config.avic.faults;
        remap::drain(&HostMemory(self), Host::IOMMU, faults, |whom| woken.push(whom));
        for whom in woken {
            match whom {
                Woken::Tagged(tag) => self.wake_tagged(tag, step),
                Woken::Everyone => {
                    for handler in self.iommu.handlers.clone() {
                        if let Handler::Guest { posted: Some(vcpu), .. } = handler {
                            self.wake_up(vcpu, step);
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
        let known = self.vms.get(vm.0 as usize).is_some_and(|vm| tag.vcpu() < vm.vcpus);
        if known {
            let vcpu = self.vcpu_id(vm, tag.vcpu());
            self.at(vcpu).counters.avic_ga_log += 1;
            self.wake_up(vcpu, step);
        }
    }
}
