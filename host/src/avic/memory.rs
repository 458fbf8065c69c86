//! Host-physical memory as far as AVIC's hardware reads it: backing pages and APIC ID tables.
//!
//! ```text
//! 0x001_0000_0000 + 4096 v     register page of vCPU v
//! 0x100_0000_0000 + 32768 m    physical APIC ID table of VM m, up to 8 pages
//! 0x200_0000_0000 + 4096 m     logical APIC ID table of VM m
//! ```
//!
//! Nothing else is there: an entry that names another address has a bad backing page.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use holdfast_abi::Memory;

use crate::boundary::{VcpuId, VmId};
use crate::host::Host;
use crate::lapic::{ApicRegisters, RegisterPage};

const PAGES: u64 = 0x001_0000_0000;
const PHYSICAL_TABLES: u64 = 0x100_0000_0000;
const LOGICAL_TABLES: u64 = 0x200_0000_0000;
const END: u64 = 0x300_0000_0000;
const PAGE_BYTES: u64 = 4096;
const PHYSICAL_TABLE_BYTES: u64 = 8 * PAGE_BYTES;

/// Host-physical address of the register page of `vcpu`.
pub(crate) const fn page_address(vcpu: VcpuId) -> u64 {
    PAGES + vcpu.0 as u64 * PAGE_BYTES
}

/// Host-physical address of the physical APIC ID table of `vm`.
pub(crate) const fn physical_table_address(vm: VmId) -> u64 {
    PHYSICAL_TABLES + vm.0 as u64 * PHYSICAL_TABLE_BYTES
}

/// Host-physical address of the logical APIC ID table of `vm`.
pub(crate) const fn logical_table_address(vm: VmId) -> u64 {
    LOGICAL_TABLES + vm.0 as u64 * PAGE_BYTES
}

/// The memory of a host, for hardware.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory<'h>(pub(crate) &'h Host);

impl HostMemory<'_> {
    fn page(&self, address: u64) -> Option<&RegisterPage> {
        let offset = address.checked_sub(PAGES)?;
        let vcpu = self.0.vcpus.get(usize::try_from(offset / PAGE_BYTES).ok()?)?;
        Some(vcpu.apic.registers())
    }

    fn logical(&self, address: u64) -> Option<&AtomicU32> {
        let offset = address.checked_sub(LOGICAL_TABLES)?;
        let vm = self.0.vms.get(usize::try_from(offset / PAGE_BYTES).ok()?)?;
        vm.avic.as_ref()?.logical.get((offset % PAGE_BYTES / 4) as usize)
    }

    fn physical(&self, address: u64) -> Option<&AtomicU64> {
        let offset = address
            .checked_sub(PHYSICAL_TABLES)
            .filter(|_| address < LOGICAL_TABLES)?;
        let vm = self.0.vms.get(usize::try_from(offset / PHYSICAL_TABLE_BYTES).ok()?)?;
        let index = offset % PHYSICAL_TABLE_BYTES / 8;
        vm.avic.as_ref()?.physical.get(index as usize)
    }
}

impl Memory for HostMemory<'_> {
    #[inline]
    fn load32(&self, address: u64) -> Option<u32> {
        if address < PHYSICAL_TABLES {
            return Some(self.page(address)?.load((address % PAGE_BYTES) as u32));
        }
        self.logical(address).map(|word| word.load(Acquire))
    }

    fn store32(&self, address: u64, value: u32) {
        if address < PHYSICAL_TABLES {
            if let Some(page) = self.page(address) {
                page.store((address % PAGE_BYTES) as u32, value);
            }
        } else if let Some(word) = self.logical(address) {
            word.store(value, Release);
        }
    }

    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        if address < PHYSICAL_TABLES {
            return Some(self.page(address)?.fetch_or((address % PAGE_BYTES) as u32, bits));
        }
        self.logical(address).map(|word| word.fetch_or(bits, AcqRel))
    }

    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        if address < PHYSICAL_TABLES {
            return Some(self.page(address)?.fetch_and((address % PAGE_BYTES) as u32, !bits));
        }
        self.logical(address).map(|word| word.fetch_and(!bits, AcqRel))
    }

    #[inline]
    fn load64(&self, address: u64) -> Option<u64> {
        // What a table's pages have beyond its entries is zero.
        let found = self.physical(address).map(|word| word.load(Acquire));
        found.or((PHYSICAL_TABLES..END).contains(&address).then_some(0))
    }

    fn store64(&self, address: u64, value: u64) {
        if let Some(word) = self.physical(address) {
            word.store(value, Release);
        }
    }

    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        let word = self.physical(address)?;
        Some(word.compare_exchange(current, new, AcqRel, Acquire))
    }

    fn fence(&self) {
        fence(SeqCst);
    }
}
