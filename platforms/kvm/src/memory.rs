//! Guest memory, and its content at boot: image, page tables, orders.

use std::ops::Range;

use holdfast_protocol::{Orders, encode, layout};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::error::Error;
use crate::image::Image;

const PRESENT_WRITABLE: u64 = 0b11;
/// Page-directory entry bit: a page of 2 MiB.
const LARGE: u64 = 1 << 7;
/// Page-table entry bit: not cached, for devices.
const UNCACHED: u64 = 1 << 4;
const LARGE_BYTES: u64 = 2 << 20;
const ENTRIES: u64 = 512;

/// The memory of one guest, mapped into this process.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) map: GuestMemoryMmap,
    bytes: u64,
}

/// The range of guest memory that the image and its boot stacks occupy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Address of the first boot stack, after the image.
    boot_stacks: u64,
    vcpus: u32,
}

impl Memory {
    /// Maps `bytes` of memory for the VM named `vm`.
    pub(crate) fn map(vm: &str, bytes: u64) -> Result<Memory, Error> {
        let whole = layout::MEMORY_MIN..=layout::MEMORY_END;
        if !whole.contains(&bytes) || !bytes.is_multiple_of(layout::PAGE) {
            return Err(Error::Invalid {
                vm: vm.to_owned(),
                what: format!(
                    "{bytes} bytes of memory, expected {} to {} in pages of {}",
                    whole.start(),
                    whole.end(),
                    layout::PAGE
                ),
            });
        }
        let map = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes as usize)]).map_err(|error| {
            Error::host(
                format!("map {bytes} bytes of guest memory"),
                std::io::Error::other(error),
            )
        })?;
        Ok(Memory { map, bytes })
    }

    /// Returns the addresses of the boot stack of `vcpu` if `image` is loaded.
    pub(crate) fn boot_stack(&self, image: &Image, vcpu: u32) -> Range<u64> {
        let top = Taken::of(image, vcpu + 1).boot_stack(vcpu).min(self.bytes);
        top.saturating_sub(layout::BOOT_STACK)..top
    }

    /// Loads `image` for `vcpus` vCPUs, with page tables.
    pub(crate) fn load(&self, vm: &str, vcpus: u32, image: &Image) -> Result<Taken, Error> {
        let taken = Taken::of(image, vcpus);
        if taken.heap() >= self.bytes {
            return Err(Error::Invalid {
                vm: vm.to_owned(),
                what: format!(
                    "{} bytes of memory, image and boot stacks need {}",
                    self.bytes,
                    taken.heap()
                ),
            });
        }
        for segment in &image.segments {
            self.write(segment.address, &segment.content)?;
        }
        self.write_tables()?;
        self.unmap_null()?;
        Ok(taken)
    }

    /// Returns the address after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.bytes
    }

    /// Writes the guest's orders.
    pub(crate) fn write_orders(&self, orders: &Orders) -> Result<(), Error> {
        let encoded = encode(orders);
        assert!(
            (encoded.len() as u64) < layout::ORDERS_BYTES,
            "orders of {} bytes",
            encoded.len()
        );
        self.write(layout::ORDERS, &(encoded.len() as u32).to_le_bytes())?;
        self.write(layout::ORDERS + 4, &encoded)
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.map.write_slice(bytes, GuestAddress(address)).map_err(|error| {
            Error::host(
                format!("write guest memory at {address:#x}"),
                std::io::Error::other(error),
            )
        })
    }

    /// Returns the 64-bit word at `address`, or `None` if there is no memory.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        self.map.read_obj(GuestAddress(address)).ok()
    }

    /// Writes page tables that map 4 GiB one to one. Pages from [`layout::MEMORY_END`] on are devices' and uncached.
    pub(crate) fn write_tables(&self) -> Result<(), Error> {
        let table = |number: u64| layout::TABLES + number * layout::PAGE;
        let entry = |of: u64, index: u64, value: u64| self.write(of + index * 8, &value.to_le_bytes());
        // Table 0 is of the fourth level, 1 of the third, 2 to 5 of the second.
        entry(table(0), 0, table(1) | PRESENT_WRITABLE)?;
        for gibibyte in 0..4 {
            entry(table(1), gibibyte, table(2 + gibibyte) | PRESENT_WRITABLE)?;
            for index in 0..ENTRIES {
                let address = (gibibyte * ENTRIES + index) * LARGE_BYTES;
                let caching = if address >= layout::MEMORY_END { UNCACHED } else { 0 };
                entry(table(2 + gibibyte), index, address | LARGE | PRESENT_WRITABLE | caching)?;
            }
        }
        Ok(())
    }

    /// Replaces the first 2 MiB page by small pages, without the first one. A null pointer then faults.
    fn unmap_null(&self) -> Result<(), Error> {
        let [second, first] = [2, 6].map(|number| layout::TABLES + number * layout::PAGE);
        self.write(second, &(first | PRESENT_WRITABLE).to_le_bytes())?;
        (1..ENTRIES).try_for_each(|index| {
            let page = (index * layout::PAGE) | PRESENT_WRITABLE;
            self.write(first + index * 8, &page.to_le_bytes())
        })
    }
}

impl Taken {
    fn of(image: &Image, vcpus: u32) -> Taken {
        Taken {
            boot_stacks: image.end().next_multiple_of(layout::PAGE),
            vcpus,
        }
    }

    /// Returns the address of the heap.
    pub(crate) fn heap(self) -> u64 {
        self.boot_stacks + u64::from(self.vcpus) * layout::BOOT_STACK
    }

    /// Returns the initial stack pointer of `vcpu`.
    pub(crate) fn boot_stack(self, vcpu: u32) -> u64 {
        self.boot_stacks + u64::from(vcpu + 1) * layout::BOOT_STACK
    }
}
