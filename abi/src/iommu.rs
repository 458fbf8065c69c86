//! The parts of AMD's IOMMU that deliver interrupts to guests: remap entries in guest mode and the guest APIC (GA) log.
//!
//! ```text
//! low   0 valid  1 no fault  2 GALogIntr  6 IsRun  7 GuestMode  31:8 destination  63:32 GATag
//! high  7:0 vector  51:12 backing page  63:56 destination, high bits
//! ```
//!
//! Source: AMD I/O Virtualization Technology Specification (document 48882), "Interrupt Remapping Tables" and "Guest
//! APIC Log". The register offsets and bits that Linux 6.17 defines in `amd_iommu_types.h` agree.

use crate::avic::{GaTag, PAGE_ADDRESS};

/// Offset of the status register. Software clears its bits by writing ones.
pub const STATUS: u32 = 0x2020;
/// Status bit: the GA log was full when the IOMMU had to add an entry. It can be set without [`STATUS_GA_INTERRUPT`].
///
/// The hardware then stops the log (`GALogRun`, bit 8, becomes 0). It logs nothing until software restarts the log:
/// logging off, this bit cleared, logging on again (section 2.7.4 of the specification). Here this one bit represents
/// the whole sequence: the log is stopped while it is set.
pub const STATUS_GA_OVERFLOW: u64 = 1 << 9;
/// Status bit: the GA log has new entries. The IOMMU sends an interrupt when this bit or [`STATUS_GA_OVERFLOW`] becomes
/// set and neither was. That the two bits share one edge is an assumption; it sends the fewest interrupts.
pub const STATUS_GA_INTERRUPT: u64 = 1 << 10;
/// Offset of the head register: the byte in the log that software reads next.
pub const GA_LOG_HEAD: u32 = 0x2040;
/// Offset of the tail register: the byte in the log that the IOMMU writes next.
pub const GA_LOG_TAIL: u32 = 0x2048;
/// Number of entries in Linux's log (`GA_LOG_ENTRIES`).
pub const GA_LOG_ENTRIES: usize = 512;
/// Size of a log entry in bytes.
const GA_LOG_ENTRY_BYTES: usize = 8;

/// Host-physical addresses of an IOMMU's registers, log and remap table. The table has one entry for each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Address of the MMIO registers.
    pub registers: u64,
    /// Address of the GA log.
    pub log: u64,
    /// Number of entries in the log, at least 2.
    pub log_entries: usize,
    /// Address of the remap table.
    pub table: u64,
}

impl Layout {
    /// Returns the address of the register at `offset`.
    pub const fn register(&self, offset: u32) -> u64 {
        self.registers + offset as u64
    }

    /// Returns the offset in bytes of the log entry after the one at `offset`. The log wraps around.
    pub const fn next_in_log(&self, offset: u64) -> u64 {
        (offset + GA_LOG_ENTRY_BYTES as u64) % (self.log_entries * GA_LOG_ENTRY_BYTES) as u64
    }

    /// Returns the address of `device`'s remap entry.
    pub const fn entry(&self, device: u16) -> u64 {
        self.table + device as u64 * RemapEntry::BYTES
    }
}

/// An entry of the interrupt remapping table, 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemapEntry {
    /// Bits 63:0.
    pub low: u64,
    /// Bits 127:64.
    pub high: u64,
}

impl RemapEntry {
    /// Size of an entry in bytes.
    pub const BYTES: u64 = 16;
    /// Bit of the low half: the entry is valid.
    const VALID: u64 = 1;
    /// Bit of the low half in guest mode: interrupts for a stopped vCPU are logged.
    const GA_LOG_INTR: u64 = 1 << 2;
    /// Bit of the low half in guest mode: the vCPU runs on the destination CPU.
    const IS_RUN: u64 = 1 << 6;
    /// Bit of the low half: the entry is in guest mode, and interrupts go into a backing page.
    const GUEST_MODE: u64 = 1 << 7;

    /// Returns the entry, not in guest mode, that sends a device's interrupt as `vector` to the host CPU with APIC ID
    /// `destination`.
    pub const fn legacy(vector: u8, destination: u32) -> RemapEntry {
        RemapEntry {
            low: RemapEntry::VALID,
            high: vector as u64,
        }
        .to(destination)
    }

    /// Returns the guest-mode entry that sets `vector` in the backing page, at host-physical `page`, of a stopped vCPU.
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

    /// Returns the entry with the vCPU running on the host CPU with APIC ID `destination`.
    pub const fn running(self, destination: u32) -> RemapEntry {
        let entry = self.to(destination);
        RemapEntry {
            low: entry.low & !RemapEntry::GA_LOG_INTR | RemapEntry::IS_RUN,
            ..entry
        }
    }

    /// Returns the entry with the vCPU stopped. With `log` the IOMMU logs its interrupts, which wakes a sleeping vCPU.
    pub const fn stopped(self, log: bool) -> RemapEntry {
        let logs = if log { RemapEntry::GA_LOG_INTR } else { 0 };
        RemapEntry {
            low: self.low & !(RemapEntry::IS_RUN | RemapEntry::GA_LOG_INTR) | logs,
            ..self
        }
    }

    /// Returns whether the entry is valid.
    pub const fn is_valid(self) -> bool {
        self.low & RemapEntry::VALID != 0
    }

    /// Returns whether the entry is in guest mode.
    pub const fn is_guest(self) -> bool {
        self.low & RemapEntry::GUEST_MODE != 0
    }

    /// Returns whether the vCPU runs.
    pub const fn is_run(self) -> bool {
        self.low & RemapEntry::IS_RUN != 0
    }

    /// Returns whether the IOMMU logs interrupts for the vCPU while it is stopped.
    pub const fn is_logged(self) -> bool {
        self.low & RemapEntry::GA_LOG_INTR != 0
    }

    /// Returns the APIC ID of the host CPU.
    pub const fn destination(self) -> u32 {
        (self.low >> 8 & 0xff_ffff) as u32 | (self.high >> 56 << 24) as u32
    }

    /// Returns the tag that log entries for the vCPU carry.
    pub const fn tag(self) -> GaTag {
        GaTag((self.low >> 32) as u32)
    }

    /// Returns the vector.
    pub const fn vector(self) -> u8 {
        self.high as u8
    }

    /// Returns the host-physical address of the backing page.
    pub const fn backing_page(self) -> u64 {
        self.high & PAGE_ADDRESS
    }
}

/// An entry of the GA log: tag in bits 31:0, device in bits 47:32, kind in bits 63:60 (1: interrupt for a guest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GaLogEntry(pub u64);

impl GaLogEntry {
    /// Returns the entry for an interrupt of `device` to the vCPU with `tag`.
    pub const fn new(tag: GaTag, device: u16) -> GaLogEntry {
        GaLogEntry(1 << 60 | (device as u64) << 32 | tag.0 as u64)
    }

    /// Returns the tag of the target vCPU.
    pub const fn tag(self) -> GaTag {
        GaTag(self.0 as u32)
    }

    /// Returns the device that sent the interrupt.
    pub const fn device(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Returns whether the entry reports an interrupt for a guest.
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
