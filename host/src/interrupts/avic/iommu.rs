//! Devices behind the IOMMU, whose interrupts go through the host or directly into guests (docs/spec/interrupts.md,
//! "IOMMU interrupts").
//!
//! The remap entry of a guest's device starts with the host as its target, whose handler signals the guest's message
//! (vfio and irqfd). The entry is in guest mode while AVIC is on for the one vCPU that the message addresses. When AVIC
//! is inhibited, the entry names the host again.
//!
//! - **Only interrupts for one vCPU**: a message that is not fixed, edge-triggered and for one vCPU goes through the
//!   host.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{GA_LOG_ENTRIES, RemapEntry};
use holdfast_abi::lapic::DeliveryMode;

use super::AvicDriver;
use super::devices::Device;
use super::remap::{self, Remap, Woken};
use crate::boundary::{Cost, VcpuId, VmId};
use crate::error::{ConfigError, in_range};
use crate::interrupts::lapic::Message;
use crate::interrupts::memory::{self, HostMemory};
use crate::step::Step;
use crate::wings::Wings;

/// The host vector of device 0. The others follow.
const FIRST_VECTOR: u8 = 0x30;
/// The number of devices for which the host has vectors.
const DEVICES_MAX: i64 = 190;

/// Adds a device, and returns its number, which is the number of its remap entry.
///
/// # Errors
/// Fails if there are too many devices.
pub(crate) fn add_device(on: &mut Wings, record: Device) -> Result<u16, ConfigError> {
    let device = on.apics.iommu.devices.len();
    in_range("devices", device + 1, 1, DEVICES_MAX)?;
    if on.apics.iommu.log.is_empty() {
        on.apics.iommu.log = (0..GA_LOG_ENTRIES).map(|_| AtomicU64::new(0)).collect();
    }
    on.apics.iommu.devices.push(record);
    on.apics.iommu.table.extend([AtomicU64::new(0), AtomicU64::new(0)]);
    route_by_host(on, device);
    Ok(device as u16)
}

/// Makes the interrupt of `device` go to the host. Devices are spread over the pCPUs, as irqbalance does it.
fn route_by_host(on: &Wings, device: usize) {
    let vector = FIRST_VECTOR + device as u8;
    let pcpu = (device % on.threads.sched.pcpus() as usize) as u32;
    let memory = on.memory();
    remap(on, &memory, device).write(RemapEntry::legacy(vector, pcpu));
}

fn remap<'h>(on: &Wings, memory: &'h HostMemory<'h>, device: usize) -> Remap<'h, HostMemory<'h>> {
    Remap {
        memory,
        address: memory::IOMMU.entry(device as u16),
        faults: on.guests.planted.avic,
    }
}

/// Returns the devices whose interrupts the IOMMU delivers into the page of `vcpu`.
fn posted_to(on: &Wings, vcpu: VcpuId) -> impl Iterator<Item = usize> {
    let is_posted = move |device: &Device| matches!(device, Device::Guest { posted, .. } if *posted == Some(vcpu));
    let devices = on.apics.iommu.devices.iter().enumerate();
    devices
        .filter(move |(_, device)| is_posted(device))
        .map(|(device, _)| device)
}

/// Returns the remap entries of those devices.
pub(super) fn entries<'h>(
    on: &'h Wings,
    memory: &'h HostMemory<'h>,
    vcpu: VcpuId,
) -> impl Iterator<Item = Remap<'h, HostMemory<'h>>> {
    posted_to(on, vcpu).map(move |device| remap(on, memory, device))
}

/// Marks `vcpu` as running on `pcpu` in its remap entries.
pub(super) fn running(on: &Wings, vcpu: VcpuId, pcpu: u32) {
    let memory = on.memory();
    entries(on, &memory, vcpu).for_each(|entry| entry.running(pcpu));
}

/// Marks `vcpu` as not running in its remap entries. `sleeps`: its interrupts must wake it.
pub(super) fn stopped(on: &Wings, vcpu: VcpuId, sleeps: bool) {
    let memory = on.memory();
    entries(on, &memory, vcpu).for_each(|entry| entry.stopped(sleeps));
}

/// Lets the IOMMU deliver the interrupts for `vcpu` alone without the host. AVIC of `vcpu`, which is outside guest
/// mode on `pcpu`, was switched on (`avic_set_pi_irte_mode`, `amd_iommu_activate_guest_mode`).
pub(super) fn activate(on: &mut Wings, vcpu: VcpuId, pcpu: u32) {
    // In 4.7 the IOMMU delivers nothing: that came with the second part of the series, in 4.9.
    if on.config.avic.driver == AvicDriver::Linux4_7 {
        return;
    }
    let (vm, index) = (on.guests.vcpus[vcpu].vm, on.guests.vcpus[vcpu].index);
    for device in 0..on.apics.iommu.devices.len() {
        let Some(message) = message_for(on, vcpu, device) else {
            continue;
        };
        set_posted(on, device, Some(vcpu));
        let tag = GaTag::new(on.guests.vms[vm].apic.avic().map_or(0, |avic| avic.number), index);
        let memory = on.memory();
        let entry = RemapEntry::guest(message.vector, memory::page_address(vcpu), tag);
        remap(on, &memory, device).write(entry.running(pcpu));
    }
}

/// Returns the message of `device`, if it is for `vcpu` alone and of a kind that an IOMMU can deliver alone.
fn message_for(on: &Wings, vcpu: VcpuId, device: usize) -> Option<Message> {
    let (vm, index) = (on.guests.vcpus[vcpu].vm, on.guests.vcpus[vcpu].index);
    let Device::Guest {
        vm: of, address, data, ..
    } = on.apics.iommu.devices[device]
    else {
        return None;
    };
    let message = Message::of_msi(address, data).filter(|_| of == vm);
    message.filter(|message| can_post(on, vm, index, message))
}

/// Returns whether `message` is for the vCPU with `index` alone, and of a kind that the IOMMU can deliver into its
/// page or post.
fn can_post(on: &Wings, vm: VmId, index: u32, message: &Message) -> bool {
    message.mode == DeliveryMode::Fixed
        && !message.level
        && !message.has_illegal_vector()
        && on.only_recipient(vm, message) == Some(index)
}

fn set_posted(on: &mut Wings, device: usize, vcpu: Option<VcpuId>) {
    if let Device::Guest { posted, .. } = &mut on.apics.iommu.devices[device] {
        *posted = vcpu;
    }
}

/// Makes interrupts of the devices of `vcpu` go through the host again: AVIC is switched off. Must precede the read
/// of IRR, into which the IOMMU may have delivered.
pub(super) fn deactivate(on: &mut Wings, vcpu: VcpuId) {
    let devices: Vec<usize> = posted_to(on, vcpu).collect();
    for device in devices {
        set_posted(on, device, None);
        route_by_host(on, device);
    }
}

/// Removes the devices of `vm`: their interrupts have no effect from now on.
pub(crate) fn remove_devices(on: &mut Wings, vm: VmId) {
    for device in 0..on.apics.iommu.devices.len() {
        if matches!(on.apics.iommu.devices[device], Device::Guest { vm: of, .. } if of == vm) {
            route_by_host(on, device);
            on.apics.iommu.devices[device] = Device::Gone;
        }
    }
}

/// Handles a device's interrupt with the host's `vector` on the executing pCPU. An unassigned vector is spurious.
pub(crate) fn device_interrupt(on: &mut Wings, vector: u8, step: &mut Step<'_>) {
    step.charge(Cost::HostInterrupt, 1);
    let device = usize::from(vector).checked_sub(usize::from(FIRST_VECTOR));
    match device.and_then(|device| on.apics.iommu.devices.get(device)) {
        Some(&Device::Guest { vm, address, data, .. }) => on.msi(vm, address, data, step),
        Some(&Device::Wake(task)) => on.threads.wake_task(task, step),
        Some(Device::Gone) | None => {}
    }
}

/// Handles the log's interrupt: wakes the vCPUs it names (`avic_ga_log_notifier`), or all candidates if entries are
/// missing.
pub(crate) fn ga_log_interrupt(on: &mut Wings, step: &mut Step<'_>) {
    step.charge(Cost::HostInterrupt, 1);
    let mut woken = Vec::new();
    let faults = on.guests.planted.avic;
    remap::drain(&on.memory(), memory::IOMMU, faults, |whom| woken.push(whom));
    for whom in woken {
        match whom {
            Woken::Tagged(tag) => wake_tagged(on, tag, step),
            Woken::Everyone => {
                for device in on.apics.iommu.devices.clone() {
                    if let Device::Guest { posted: Some(vcpu), .. } = device {
                        on.wake_up(vcpu, step);
                    }
                }
            }
        }
    }
}

/// Wakes the vCPU with `tag`, if there is one.
fn wake_tagged(on: &mut Wings, tag: GaTag, step: &mut Step<'_>) {
    let Some(vm) = tag.vm().checked_sub(1).map(VmId) else {
        return;
    };
    let known = on.guests.vms.get(vm).is_some_and(|vm| tag.vcpu() < vm.vcpus);
    if known {
        let vcpu = on.guests.vcpu_id(vm, tag.vcpu());
        on.guests.vcpus[vcpu].counters.avic_ga_log += 1;
        on.wake_up(vcpu, step);
    }
}
