//! AMD's IOMMU, as far as it delivers interrupts into guests: remap entries in guest mode and the guest APIC (GA) log.
//!
//! ```text
//! low   0 valid  1 no fault  2 GALogIntr  6 IsRun  7 GuestMode  31:8 destination  63:32 GATag
//! high  7:0 vector  51:12 backing page  63:56 destination, high bits
//! ```
//!
//! Source: AMD I/O Virtualization Technology Specification (48882), "Interrupt Remapping Tables" and "Guest APIC Log"; what of it
//! could be compared agrees with Linux 6.17 (`amd_iommu_types.h`).

use crate::avic::{GaTag, PAGE_ADDRESS};

/// Status register; software clears its bits by writing ones.
pub const STATUS: u32 = 0x2020;
/// Status: the GA log was full when there was something for it. The part stops the log (`GALogRun`, bit 8, becomes 0), and nothing
/// is logged until software has restarted it: logging off, this bit cleared, logging on again (section 2.7.4). One
/// bit stands for all of that here: the log is stopped as long as this is set. It can be set without
/// [`STATUS_GA_INTERRUPT`].
pub const STATUS_GA_OVERFLOW: u64 = 1 << 9;
/// Status: the GA log has something new. An interrupt is sent when this or the bit of the overflow becomes set and neither was
/// (that the two share one edge is an assumption; it sends the fewest interrupts).
pub const STATUS_GA_INTERRUPT: u64 = 1 << 10;
/// Register with the address of the GA log and its size.
pub const GA_LOG_BASE: u32 = 0xe0;
/// Register with the address where the IOMMU keeps the log's tail.
pub const GA_LOG_TAIL_ADDRESS: u32 = 0xe8;
/// Register: where software reads next, in bytes.
pub const GA_LOG_HEAD: u32 = 0x2040;
/// Register: where the IOMMU writes next, in bytes.
pub const GA_LOG_TAIL: u32 = 0x2048;
/// Entries in Linux's log.
pub const GA_LOG_ENTRIES: usize = 512;
/// Bytes of an entry.
pub const GA_LOG_ENTRY_BYTES: usize = 8;

/// Where an IOMMU's registers, log and remap table lie: host-physical addresses. One entry for each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// MMIO registers.
    pub registers: u64,
    /// The GA log.
    pub log: u64,
    /// How many entries it has.
    pub log_entries: usize,
    /// The remap table.
    pub table: u64,
}

impl Layout {
    /// Address of the register at `offset`.
    pub const fn register(&self, offset: u32) -> u64 {
        self.registers + offset as u64
    }

    /// Where in the log the entry after that at `offset` is, in bytes.
    pub const fn next_in_log(&self, offset: u64) -> u64 {
        (offset + GA_LOG_ENTRY_BYTES as u64) % (self.log_entries * GA_LOG_ENTRY_BYTES) as u64
    }

    /// Address of the remap entry of `device`.
    pub const fn entry(&self, device: u16) -> u64 {
        self.table + device as u64 * RemapEntry::BYTES
    }
}

/// A remap entry of 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemapEntry {
    /// Bits 63:0.
    pub low: u64,
    /// Bits 127:64.
    pub high: u64,
}

impl RemapEntry {
    /// Bytes of an entry.
    pub const BYTES: u64 = 16;
    /// Low: the entry counts.
    pub const VALID: u64 = 1;
    /// Low: faults are not logged.
    pub const NO_FAULT: u64 = 1 << 1;
    /// Low, guest mode: log interrupts for a vCPU that does not run.
    pub const GA_LOG_INTR: u64 = 1 << 2;
    /// Low, guest mode: the vCPU runs where the destination says.
    pub const IS_RUN: u64 = 1 << 6;
    /// Low: interrupts go into a backing page.
    pub const GUEST_MODE: u64 = 1 << 7;

    /// The entry that sends `vector` of a device to the host CPU `destination`: no guest mode.
    pub const fn legacy(vector: u8, destination: u32) -> RemapEntry {
        RemapEntry {
            low: RemapEntry::VALID,
            high: vector as u64,
        }
        .to(destination)
    }

    /// The entry that writes `vector` into the backing page at host-physical `page`, of a vCPU that does not run.
    pub const fn guest(vector: u8, page: u64, tag: GaTag) -> RemapEntry {
        RemapEntry {
            low: RemapEntry::VALID | RemapEntry::GUEST_MODE | (tag.0 as u64) << 32,
            high: (page & PAGE_ADDRESS) | vector as u64,
        }
    }

    const fn to(self, destination: u32) -> RemapEntry {
        RemapEntry {
            low: self.low & !0xffff_ff00 | (destination as u64 & 0xff_ffff) << 8,
            high: self.high & !(0xff << 56) | (destination as u64 >> 24) << 56,
        }
    }

    /// The same, with the vCPU running on host CPU `destination`.
    pub const fn running(self, destination: u32) -> RemapEntry {
        let entry = self.to(destination);
        RemapEntry {
            low: entry.low & !RemapEntry::GA_LOG_INTR | RemapEntry::IS_RUN,
            ..entry
        }
    }

    /// The same, with the vCPU not running; `log`: it sleeps, and wants to be woken.
    pub const fn stopped(self, log: bool) -> RemapEntry {
        let logs = if log { RemapEntry::GA_LOG_INTR } else { 0 };
        RemapEntry {
            low: self.low & !(RemapEntry::IS_RUN | RemapEntry::GA_LOG_INTR) | logs,
            ..self
        }
    }

    /// Whether it counts.
    pub const fn is_valid(self) -> bool {
        self.low & RemapEntry::VALID != 0
    }

    /// Whether it is in guest mode.
    pub const fn is_guest(self) -> bool {
        self.low & RemapEntry::GUEST_MODE != 0
    }

    /// Whether the vCPU runs.
    pub const fn is_run(self) -> bool {
        self.low & RemapEntry::IS_RUN != 0
    }

    /// Whether interrupts for a vCPU that does not run are logged.
    pub const fn is_logged(self) -> bool {
        self.low & RemapEntry::GA_LOG_INTR != 0
    }

    /// The host CPU.
    pub const fn destination(self) -> u32 {
        (self.low >> 8 & 0xff_ffff) as u32 | (self.high >> 56 << 24) as u32
    }

    /// Whom the log names.
    pub const fn tag(self) -> GaTag {
        GaTag((self.low >> 32) as u32)
    }

    /// The vector.
    pub const fn vector(self) -> u8 {
        self.high as u8
    }

    /// Host-physical address of the backing page.
    pub const fn backing_page(self) -> u64 {
        self.high & PAGE_ADDRESS
    }
}

/// An entry of the GA log: 31:0 tag, 47:32 device, 63:60 kind, 1 for a guest's interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GaLogEntry(pub u64);

impl GaLogEntry {
    /// An interrupt of `device` for the vCPU with `tag`.
    pub const fn new(tag: GaTag, device: u16) -> GaLogEntry {
        GaLogEntry(1 << 60 | (device as u64) << 32 | tag.0 as u64)
    }

    /// Whose interrupt.
    pub const fn tag(self) -> GaTag {
        GaTag(self.0 as u32)
    }

    /// Which device.
    pub const fn device(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether it is about an interrupt for a guest at all.
    pub const fn is_guest_interrupt(self) -> bool {
        self.0 >> 60 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remap_entries_have_the_specifications_bits() {
        let entry = RemapEntry::guest(0x51, 0x0001_2345_6000, GaTag(0xdead_beef));
        assert_eq!(entry.low, 0xdead_beef_0000_0081);
        assert_eq!(entry.high, 0x0001_2345_6051);
        let running = entry.running(0x0102_0304);
        assert_eq!(running.low, 0xdead_beef_0203_04c1);
        assert_eq!(running.high, 0x0100_0001_2345_6051);
        assert_eq!(running.destination(), 0x0102_0304);
        assert_eq!(running.stopped(true).low & 0xff, 0x85);
        assert!(!running.stopped(false).is_run() && !running.stopped(false).is_logged());
        assert!(!RemapEntry::legacy(0x30, 3).is_guest());
    }

    #[test]
    fn log_entries_name_tag_and_device() {
        let entry = GaLogEntry::new(GaTag(0x201), 0x0810);
        assert_eq!(entry.0, 0x1000_0810_0000_0201);
        assert_eq!((entry.tag(), entry.device()), (GaTag(0x201), 0x0810));
        assert!(entry.is_guest_interrupt());
    }
}
