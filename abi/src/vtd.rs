//! The parts of Intel's IOMMU (VT-d) that deliver interrupts: entries of the interrupt remapping table.
//!
//! ```text
//! remapped  low   0 present  1 no fault  23:16 vector  63:32 destination
//! posted    low   0 present  1 no fault  15 posted mode  23:16 vector  63:38 descriptor, bits 31:6
//!           high  63:32 descriptor, bits 63:32
//! ```
//!
//! Source: Intel Virtualization Technology for Directed I/O specification, sections "Interrupt Remapping Table Entry
//! (IRTE) for Remapped Interrupts" and "... for Posted Interrupts", from memory. The source ID in bits 83:64 is left
//! out: devices are identified by the index of their entry here.

use crate::posted::PidPointer;

/// An entry of the interrupt remapping table, 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Irte {
    /// Bits 63:0.
    pub low: u64,
    /// Bits 127:64.
    pub high: u64,
}

impl Irte {
    /// Size of an entry in bytes.
    pub const BYTES: u64 = 16;
    const PRESENT: u64 = 1;
    const POSTED: u64 = 1 << 15;
    const VECTOR_SHIFT: u32 = 16;
    const DESCRIPTOR_LOW: u64 = 0xffff_ffc0;

    /// Returns the entry that sends a device's interrupt as `vector` to the host CPU with APIC ID `destination`.
    pub const fn remapped(vector: u8, destination: u32) -> Irte {
        Irte {
            low: Irte::PRESENT | (vector as u64) << Irte::VECTOR_SHIFT | (destination as u64) << 32,
            high: 0,
        }
    }

    /// Returns the entry that posts `vector` to the descriptor at the host-physical address `descriptor`.
    pub const fn posted(vector: u8, descriptor: u64) -> Irte {
        let address = descriptor & PidPointer::ADDRESS;
        Irte {
            low: Irte::PRESENT
                | Irte::POSTED
                | (vector as u64) << Irte::VECTOR_SHIFT
                | (address & Irte::DESCRIPTOR_LOW) << 32,
            high: address & !0xffff_ffff,
        }
    }

    /// Returns whether the entry is present.
    pub const fn is_present(self) -> bool {
        self.low & Irte::PRESENT != 0
    }

    /// Returns whether interrupts are posted.
    pub const fn is_posted(self) -> bool {
        self.low & Irte::POSTED != 0
    }

    /// Returns the vector: the guest's if interrupts are posted, otherwise the host's.
    pub const fn vector(self) -> u8 {
        (self.low >> Irte::VECTOR_SHIFT) as u8
    }

    /// Returns the APIC ID of the host CPU, for an entry that is not posted.
    pub const fn destination(self) -> u32 {
        (self.low >> 32) as u32
    }

    /// Returns the host-physical address of the descriptor, for a posted entry.
    pub const fn descriptor(self) -> u64 {
        (self.low >> 32) & Irte::DESCRIPTOR_LOW | self.high & !0xffff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_what_they_were_made_of() {
        let host = Irte::remapped(0x41, 0x0102_0307);
        assert_eq!(host.low, 0x0102_0307_0041_0001);
        assert!(host.is_present() && !host.is_posted());
        assert_eq!((host.vector(), host.destination()), (0x41, 0x0102_0307));
        let guest = Irte::posted(0x63, 0x0003_0000_1234_57ff);
        assert!(guest.is_present() && guest.is_posted());
        assert_eq!((guest.vector(), guest.descriptor()), (0x63, 0x0003_0000_1234_57c0));
        assert!(!Irte::default().is_present());
    }
}
