//! Guest memory: the image, page tables, orders.

use holdfast_protocol::{Orders, encode, layout};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::error::Error;
use crate::image::Image;

const PRESENT_WRITABLE: u64 = 0b11;
/// Page-directory entry: a page of 2 MiB.
const LARGE: u64 = 1 << 7;
/// Page-table entry: not cached; for devices.
const UNCACHED: u64 = 1 << 4;
const LARGE_BYTES: u64 = 2 << 20;
const ENTRIES: u64 = 512;

/// Guest memory with the image in it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) map: GuestMemoryMmap,
    bytes: u64,
    /// First byte after the image.
    boot_stacks: u64,
    vcpus: u32,
}

impl Memory {
    /// Maps `bytes` and loads `image`.
    pub(crate) fn new(vm: &str, bytes: u64, vcpus: u32, image: &Image) -> Result<Memory, Error> {
        let whole = layout::MEMORY_MIN..=layout::MEMORY_END;
        if !whole.contains(&bytes) || !bytes.is_multiple_of(layout::PAGE) {
            return Err(Error::Invalid {
                vm: vm.to_owned(),
                what: format!("{bytes} bytes of memory: expected {whole:?}, in pages"),
            });
        }
        let map = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes as usize)]).map_err(|error| {
            Error::host(
                format!("map {bytes} bytes of guest memory"),
                std::io::Error::other(error),
            )
        })?;
        let memory = Memory {
            map,
            bytes,
            boot_stacks: image.end().next_multiple_of(layout::PAGE),
            vcpus,
        };
        if memory.heap() >= bytes {
            return Err(Error::Invalid {
                vm: vm.to_owned(),
                what: format!("{bytes} bytes of memory: image and boot stacks need {}", memory.heap()),
            });
        }
        for segment in &image.segments {
            memory.write(segment.address, &segment.content)?;
        }
        memory.write_tables()?;
        Ok(memory)
    }

    /// First byte of the heap.
    pub(crate) fn heap(&self) -> u64 {
        self.boot_stacks + u64::from(self.vcpus) * layout::BOOT_STACK
    }

    /// One past the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.bytes
    }

    /// Where the stack pointer of `vcpu` starts.
    pub(crate) fn boot_stack(&self, vcpu: u32) -> u64 {
        self.boot_stacks + u64::from(vcpu + 1) * layout::BOOT_STACK
    }

    /// Writes what the guest is to do.
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

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.map.write_slice(bytes, GuestAddress(address)).map_err(|error| {
            Error::host(
                format!("write guest memory at {address:#x}"),
                std::io::Error::other(error),
            )
        })
    }

    /// The word at `address`, if there is memory.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        self.map.read_obj(GuestAddress(address)).ok()
    }

    /// Page tables: 4 GiB one to one, without the first page. Memory ends before the devices' pages.
    fn write_tables(&self) -> Result<(), Error> {
        let table = |number: u64| layout::TABLES + number * layout::PAGE;
        let entry = |of: u64, index: u64, value: u64| self.write(of + index * 8, &value.to_le_bytes());
        // 0: fourth level, 1: third, 2 to 5: second, 6: first, for the first 2 MiB.
        entry(table(0), 0, table(1) | PRESENT_WRITABLE)?;
        for gibibyte in 0..4 {
            entry(table(1), gibibyte, table(2 + gibibyte) | PRESENT_WRITABLE)?;
            for index in 0..ENTRIES {
                let address = (gibibyte * ENTRIES + index) * LARGE_BYTES;
                let caching = if address >= layout::MEMORY_END { UNCACHED } else { 0 };
                entry(table(2 + gibibyte), index, address | LARGE | PRESENT_WRITABLE | caching)?;
            }
        }
        entry(table(2), 0, table(6) | PRESENT_WRITABLE)?;
        for index in 1..ENTRIES {
            entry(table(6), index, (index * layout::PAGE) | PRESENT_WRITABLE)?;
        }
        Ok(())
    }
}
