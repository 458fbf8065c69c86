//! Host-physical memory as interrupt hardware sees it: register pages, AVIC's APIC ID tables, Intel's descriptors and
//! the tables that lead to them.
//!
//! ```text
//! 0x001_0000_0000 + 4096 v     register page of vCPU v
//! 0x100_0000_0000 + 32768 m    physical APIC ID table of VM m, up to 8 pages
//! 0x200_0000_0000 + 4096 m     logical APIC ID table of VM m
//! 0x300_0000_0000 + 64 v       posted-interrupt descriptor of vCPU v
//! 0x400_0000_0000 + 524288 m   PID-pointer table of VM m
//! 0x500_0000_0000              registers of the IOMMU
//! 0x501_0000_0000              its guest APIC log
//! 0x502_0000_0000 + 16 d       remap entry of device d
//! ```
//!
//! Other addresses hold nothing: a table entry that names one has a bad backing page. Each area has room for more vCPUs
//! and VMs than there can be, so an address beyond an area names none of that area.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use holdfast_abi::Memory;
use holdfast_abi::iommu::{self, Layout};
use holdfast_abi::posted::{self, PidPointer};

use super::VmApic;
use super::apicv::VcpuApicv;
use super::avic::Iommu;
use crate::boundary::{VcpuId, VmId};
use crate::guests::Guests;
use crate::interrupts::lapic::{ApicRegisters, RegisterPage};

const PAGES: u64 = 0x001_0000_0000;
const PHYSICAL_TABLES: u64 = 0x100_0000_0000;
const LOGICAL_TABLES: u64 = 0x200_0000_0000;
const DESCRIPTORS: u64 = 0x300_0000_0000;
const PID_TABLES: u64 = 0x400_0000_0000;
const IOMMU_BASE: u64 = 0x500_0000_0000;
const PAGE_BYTES: u64 = 4096;
const PHYSICAL_TABLE_BYTES: u64 = 8 * PAGE_BYTES;
/// An entry for each index of 16 bits.
const PID_TABLE_BYTES: u64 = PidPointer::BYTES << 16;

/// Addresses of the registers and tables of the IOMMU.
pub(crate) const IOMMU: Layout = Layout {
    registers: IOMMU_BASE,
    log: IOMMU_BASE + 0x1_0000_0000,
    log_entries: iommu::GA_LOG_ENTRIES,
    table: IOMMU_BASE + 0x2_0000_0000,
};

/// Returns the host-physical address of the register page of `vcpu`.
pub(crate) const fn page_address(vcpu: VcpuId) -> u64 {
    PAGES + vcpu.0 as u64 * PAGE_BYTES
}

/// Returns the host-physical address of the physical APIC ID table of `vm`.
pub(crate) const fn physical_table_address(vm: VmId) -> u64 {
    PHYSICAL_TABLES + vm.0 as u64 * PHYSICAL_TABLE_BYTES
}

/// Returns the host-physical address of the logical APIC ID table of `vm`.
pub(crate) const fn logical_table_address(vm: VmId) -> u64 {
    LOGICAL_TABLES + vm.0 as u64 * PAGE_BYTES
}

/// Returns the host-physical address of the posted-interrupt descriptor of `vcpu`.
pub(crate) const fn descriptor_address(vcpu: VcpuId) -> u64 {
    DESCRIPTORS + vcpu.0 as u64 * posted::DESCRIPTOR_BYTES
}

/// Returns the host-physical address of the PID-pointer table of `vm`.
pub(crate) const fn pid_table_address(vm: VmId) -> u64 {
    PID_TABLES + vm.0 as u64 * PID_TABLE_BYTES
}

/// The memory of a host, for interrupt hardware.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory<'h> {
    pub(crate) guests: &'h Guests,
    pub(crate) iommu: &'h Iommu,
}

impl HostMemory<'_> {
    /// Returns the register page that contains `address`, and the offset in the page.
    fn page(&self, address: u64) -> Option<(&RegisterPage, u32)> {
        let offset = address.checked_sub(PAGES)?;
        let vcpu = VcpuId(u32::try_from(offset / PAGE_BYTES).ok()?);
        let page = self.guests.vcpus.get(vcpu)?.apic.registers();
        Some((page, (offset % PAGE_BYTES) as u32))
    }

    /// Returns what virtualizes the LAPICs of the VM with `number`, if there is such a VM.
    fn vm_apic(&self, number: u64) -> Option<&VmApic> {
        let vm = self.guests.vms.get(VmId(u32::try_from(number).ok()?))?;
        Some(&vm.apic)
    }

    fn logical(&self, address: u64) -> Option<&AtomicU32> {
        let offset = address.checked_sub(LOGICAL_TABLES)?;
        let avic = self.vm_apic(offset / PAGE_BYTES)?.avic()?;
        avic.logical.get((offset % PAGE_BYTES / 4) as usize)
    }

    fn physical(&self, address: u64) -> Option<&AtomicU64> {
        let offset = address.checked_sub(PHYSICAL_TABLES)?;
        let avic = self.vm_apic(offset / PHYSICAL_TABLE_BYTES)?.avic()?;
        avic.physical.get((offset % PHYSICAL_TABLE_BYTES / 8) as usize)
    }

    /// Returns the vCPU whose descriptor is at `address`, and the offset in the descriptor.
    fn descriptor(&self, address: u64) -> Option<(&VcpuApicv, u64)> {
        let offset = address.checked_sub(DESCRIPTORS)?;
        let vcpu = VcpuId(u32::try_from(offset / posted::DESCRIPTOR_BYTES).ok()?);
        let apicv = self.guests.vcpus.get(vcpu)?.virtualization.apicv()?;
        Some((apicv, offset % posted::DESCRIPTOR_BYTES))
    }

    /// Returns a word of PIR.
    fn posted(&self, address: u64) -> Option<&AtomicU32> {
        let (apicv, offset) = self.descriptor(address)?;
        apicv
            .pir
            .get(usize::try_from(offset.checked_sub(posted::PIR)? / 4).ok()?)
    }

    /// Returns a descriptor's control word.
    fn control(&self, address: u64) -> Option<&AtomicU64> {
        let (apicv, offset) = self.descriptor(address)?;
        (offset == posted::CONTROL).then_some(&apicv.control)
    }

    /// Returns an entry of a PID-pointer table. The rest of its pages reads as zero.
    fn pid_pointer(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(PID_TABLES)?;
        let apicv = self.vm_apic(offset / PID_TABLE_BYTES)?.apicv()?;
        let index = offset % PID_TABLE_BYTES / PidPointer::BYTES;
        Some(apicv.pids.get(index as usize).map_or(0, |pointer| pointer.0))
    }

    /// Returns a word of the IOMMU's registers and tables.
    fn iommu(&self, address: u64) -> Option<&AtomicU64> {
        const STATUS: u64 = IOMMU.register(iommu::STATUS);
        const HEAD: u64 = IOMMU.register(iommu::GA_LOG_HEAD);
        const TAIL: u64 = IOMMU.register(iommu::GA_LOG_TAIL);
        let shared = self.iommu;
        match address {
            STATUS => Some(&shared.status),
            HEAD => Some(&shared.head),
            TAIL => Some(&shared.tail),
            _ => match address.checked_sub(IOMMU.table) {
                Some(offset) => shared.table.get(usize::try_from(offset / 8).ok()?),
                None => shared
                    .log
                    .get(usize::try_from(address.checked_sub(IOMMU.log)? / 8).ok()?),
            },
        }
    }

    /// Returns a word of 32 bits outside the pages.
    fn word(&self, address: u64) -> Option<&AtomicU32> {
        self.logical(address).or_else(|| self.posted(address))
    }

    /// Returns a word of 64 bits.
    fn double(&self, address: u64) -> Option<&AtomicU64> {
        let controls = || self.control(address).or_else(|| self.iommu(address));
        self.physical(address).or_else(controls)
    }
}

impl Memory for HostMemory<'_> {
    #[inline]
    fn load32(&self, address: u64) -> Option<u32> {
        match self.page(address) {
            Some((page, offset)) => Some(page.load(offset)),
            None => self.word(address).map(|word| word.load(Acquire)),
        }
    }

    fn store32(&self, address: u64, value: u32) {
        if let Some((page, offset)) = self.page(address) {
            page.store(offset, value);
        } else if let Some(word) = self.word(address) {
            word.store(value, Release);
        }
    }

    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        match self.page(address) {
            Some((page, offset)) => Some(page.fetch_or(offset, bits)),
            None => self.word(address).map(|word| word.fetch_or(bits, AcqRel)),
        }
    }

    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        match self.page(address) {
            Some((page, offset)) => Some(page.fetch_and(offset, !bits)),
            None => self.word(address).map(|word| word.fetch_and(!bits, AcqRel)),
        }
    }

    #[inline]
    fn load64(&self, address: u64) -> Option<u64> {
        let word = || self.double(address).map(|word| word.load(Acquire));
        // The rest of a table's pages reads as zero.
        let rest = || (PHYSICAL_TABLES..DESCRIPTORS).contains(&address).then_some(0);
        self.pid_pointer(address).or_else(word).or_else(rest)
    }

    fn store64(&self, address: u64, value: u64) {
        if let Some(word) = self.double(address) {
            word.store(value, Release);
        }
    }

    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        let word = self.double(address)?;
        Some(word.compare_exchange(current, new, AcqRel, Acquire))
    }

    fn fence(&self) {
        fence(SeqCst);
    }
}
