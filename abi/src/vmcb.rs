//! The control area of AMD's virtual machine control block (VMCB): the fields for interrupts.
//!
//! Source: AMD64 Architecture Programmer's Manual volume 2, appendix B "Layout of VMCB", and section 15.29 "Advanced
//! Virtual Interrupt Controller". Offsets are in bytes.

use crate::avic::PAGE_ADDRESS;

/// Offset of the control-register intercepts: bit 16 + n is a write to CRn (not verified against the manual).
pub const INTERCEPT_CR: u32 = 0x00;
/// [`INTERCEPT_CR`] bit: writes to CR8, the task priority.
pub const INTERCEPT_CR8_WRITE: u32 = 1 << 24;
/// Offset of the intercepts of vector 5 (Linux, `INTERCEPT_IDLE_HLT`).
pub const INTERCEPT_MORE: u32 = 0x14;
/// [`INTERCEPT_MORE`] bit: HLT exits only if no virtual interrupt is pending.
pub const INTERCEPT_IDLE_HLT: u32 = 1 << 6;
/// Offset of the virtual interrupt control word.
pub const INT_CTL: u32 = 0x60;
/// Offset of AVIC's APIC BAR: the guest-physical address of the LAPIC page.
pub const AVIC_APIC_BAR: u32 = 0x98;
/// Offset of the clean bits: the groups of fields that have not changed since the last entry.
pub const CLEAN: u32 = 0xc0;
/// Offset of the host-physical address of this vCPU's AVIC backing page.
pub const AVIC_BACKING_PAGE: u32 = 0xe0;
/// Offset of the host-physical address of the VM's logical APIC ID table.
pub const AVIC_LOGICAL_TABLE: u32 = 0xf0;
/// Offset of the host-physical address of the VM's physical APIC ID table, with the table's highest index in the low
/// bits.
pub const AVIC_PHYSICAL_TABLE: u32 = 0xf8;
/// Size of the control area in bytes.
const CONTROL_BYTES: usize = 1024;

/// [`INT_CTL`] bit: a virtual interrupt is pending. Ignored while AVIC is on.
pub const V_IRQ: u32 = 1 << 8;
/// [`INT_CTL`] mask: the virtual interrupt's priority, bits 19:16. Ignored while AVIC is on.
pub const V_INTR_PRIORITY: u32 = 0xf << 16;
/// [`INT_CTL`] bit: the virtual interrupt ignores the virtual task priority. Ignored while AVIC is on.
pub const V_IGN_TPR: u32 = 1 << 20;
/// [`INT_CTL`] bit: the guest's RFLAGS.IF masks virtual interrupts only.
pub const V_INTR_MASKING: u32 = 1 << 24;
/// [`INT_CTL`] bit: AVIC is in x2APIC mode.
pub const X2APIC_MODE: u32 = 1 << 30;
/// [`INT_CTL`] bit: AVIC is on.
pub const AVIC_ENABLE: u32 = 1 << 31;
/// [`CLEAN`] bit: AVIC's fields are clean: APIC BAR, backing page and both tables.
pub const CLEAN_AVIC: u32 = 1 << 11;
/// [`AVIC_PHYSICAL_TABLE`] mask: the highest index in xAPIC mode.
const MAX_INDEX: u64 = 0xff;
/// [`AVIC_PHYSICAL_TABLE`] mask: the highest index on CPU models with extended tables.
const EXTENDED_MAX_INDEX: u64 = 0xfff;

/// The control area of a VMCB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmcb {
    words: [u32; CONTROL_BYTES / 4],
}

impl Vmcb {
    /// Returns a zeroed control area: no intercept and no feature is on.
    pub const fn new() -> Vmcb {
        Vmcb {
            words: [0; CONTROL_BYTES / 4],
        }
    }

    /// Returns the 32-bit field at `offset`, a multiple of 4.
    ///
    /// # Panics
    /// Panics if `offset` is not within the area.
    #[inline]
    pub const fn read32(&self, offset: u32) -> u32 {
        self.words[(offset / 4) as usize]
    }

    /// Returns the 64-bit field at `offset`, a multiple of 4.
    ///
    /// # Panics
    /// Panics if `offset` is not within the area.
    #[inline]
    const fn read64(&self, offset: u32) -> u64 {
        let index = (offset / 4) as usize;
        self.words[index] as u64 | (self.words[index + 1] as u64) << 32
    }

    /// Writes the 32-bit field at `offset`, a multiple of 4.
    ///
    /// # Panics
    /// Panics if `offset` is not within the area.
    pub const fn write32(&mut self, offset: u32, value: u32) {
        self.words[(offset / 4) as usize] = value;
    }

    /// Writes the 64-bit field at `offset`, a multiple of 4.
    ///
    /// # Panics
    /// Panics if `offset` is not within the area.
    pub const fn write64(&mut self, offset: u32, value: u64) {
        let index = (offset / 4) as usize;
        self.words[index] = value as u32;
        self.words[index + 1] = (value >> 32) as u32;
    }

    /// Returns whether HLT exits only if no virtual interrupt is pending.
    #[inline]
    pub const fn has_idle_hlt(&self) -> bool {
        self.read32(INTERCEPT_MORE) & INTERCEPT_IDLE_HLT != 0
    }

    /// Returns whether AVIC is on.
    #[inline]
    pub const fn has_avic(&self) -> bool {
        self.read32(INT_CTL) & AVIC_ENABLE != 0
    }

    /// Returns whether AVIC is on in x2APIC mode.
    #[inline]
    pub const fn has_x2avic(&self) -> bool {
        const BOTH: u32 = AVIC_ENABLE | X2APIC_MODE;
        self.read32(INT_CTL) & BOTH == BOTH
    }

    /// Returns the host-physical address of the backing page.
    #[inline]
    pub const fn backing_page(&self) -> u64 {
        self.read64(AVIC_BACKING_PAGE) & PAGE_ADDRESS
    }

    /// Returns the host-physical address of the logical APIC ID table.
    #[inline]
    pub const fn logical_table(&self) -> u64 {
        self.read64(AVIC_LOGICAL_TABLE) & PAGE_ADDRESS
    }

    /// Returns the host-physical address of the physical APIC ID table.
    #[inline]
    pub const fn physical_table(&self) -> u64 {
        self.read64(AVIC_PHYSICAL_TABLE) & PAGE_ADDRESS
    }

    /// Returns the highest index in the physical APIC ID table. In xAPIC mode hardware uses bits 7:0 only.
    #[inline]
    pub const fn max_index(&self) -> u32 {
        let mask = if self.has_x2avic() {
            EXTENDED_MAX_INDEX
        } else {
            MAX_INDEX
        };
        (self.read64(AVIC_PHYSICAL_TABLE) & mask) as u32
    }
}

impl Default for Vmcb {
    fn default() -> Vmcb {
        Vmcb::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_manual_has_them() {
        assert_eq!([INT_CTL, AVIC_APIC_BAR, CLEAN], [0x60, 0x98, 0xc0]);
        assert_eq!(
            [AVIC_BACKING_PAGE, AVIC_LOGICAL_TABLE, AVIC_PHYSICAL_TABLE],
            [0xe0, 0xf0, 0xf8]
        );
        assert_eq!((X2APIC_MODE, AVIC_ENABLE), (0x4000_0000, 0x8000_0000));
        assert_eq!((V_IRQ, V_INTR_PRIORITY), (0x100, 0xf_0000));
        assert_eq!((V_IGN_TPR, V_INTR_MASKING, CLEAN_AVIC), (0x10_0000, 0x100_0000, 0x800));
    }

    #[test]
    fn wide_fields_are_little_endian() {
        let mut vmcb = Vmcb::new();
        vmcb.write64(AVIC_PHYSICAL_TABLE, 0x000f_1234_5678_90fe);
        assert_eq!(vmcb.read32(AVIC_PHYSICAL_TABLE), 0x5678_90fe);
        assert_eq!(vmcb.physical_table(), 0x000f_1234_5678_9000);
        assert_eq!(vmcb.max_index(), 0xfe);
    }

    #[test]
    fn the_index_is_wider_in_x2apic_mode() {
        let mut vmcb = Vmcb::new();
        vmcb.write64(AVIC_PHYSICAL_TABLE, 0x1ff);
        assert_eq!(vmcb.max_index(), 0xff);
        vmcb.write32(INT_CTL, AVIC_ENABLE | X2APIC_MODE);
        assert_eq!(vmcb.max_index(), 0x1ff);
    }
}
