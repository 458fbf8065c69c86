//! Intel's posted interrupts and IPI virtualization: the descriptors and tables that hardware and hypervisor share.
//!
//! ```text
//! posted-interrupt descriptor, 64 bytes
//!   bits 255:0    PIR: the posted vectors
//!   bit  256      ON: a notification is outstanding
//!   bit  257      SN: notifications are suppressed
//!   bits 279:272  NV: vector of the notification
//!   bits 319:288  NDST: host APIC ID of the notification's target (xAPIC: bits 15:8 of the field)
//! PID-pointer table entry, 8 bytes
//!   bits 63:6     address of the descriptor     bit 0  valid
//! ```
//!
//! Sources: Intel SDM volume 3, sections "Posted-Interrupt Processing" and "IPI Virtualization". NV, NDST and SN are
//! defined in the Intel VT-d specification, section "Posted Interrupt Descriptor (PID)".

/// Size and alignment of a descriptor in bytes.
pub const DESCRIPTOR_BYTES: u64 = 64;
/// Offset of PIR in a descriptor: eight 32-bit words.
pub const PIR: u64 = 0;
/// Offset in a descriptor of the 64-bit word with ON, SN, NV and NDST ([`Control`]).
pub const CONTROL: u64 = 32;

/// KVM's notification vector for a CPU in guest mode (`POSTED_INTR_VECTOR`).
pub const NOTIFICATION_VECTOR: u8 = 0xf2;
/// KVM's notification vector for a sleeping vCPU (`POSTED_INTR_WAKEUP_VECTOR`).
pub const WAKEUP_VECTOR: u8 = 0xf1;

/// Bits 319:256 of a descriptor: whether, how and where to notify. Hardware and hypervisor both change the word, so it
/// is changed atomically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Control(pub u64);

impl Control {
    /// Outstanding notification. Set from the sending of a notification until the target clears it, before it reads
    /// PIR.
    pub const ON: u64 = 1 << 0;
    /// Suppressed notification. While it is set, a sender posts but does not notify.
    pub const SN: u64 = 1 << 1;
    const NV_SHIFT: u32 = 16;
    const NDST_SHIFT: u32 = 32;

    /// Returns the word, with ON and SN clear, for notifications by `vector` to the host CPU with APIC ID
    /// `destination`.
    pub const fn new(vector: u8, destination: u32) -> Control {
        Control((destination as u64) << Control::NDST_SHIFT | (vector as u64) << Control::NV_SHIFT)
    }

    /// Returns whether a notification is outstanding.
    pub const fn is_on(self) -> bool {
        self.0 & Control::ON != 0
    }

    /// Returns whether notifications are suppressed.
    pub const fn is_suppressed(self) -> bool {
        self.0 & Control::SN != 0
    }

    /// Returns NV, the notification vector.
    pub const fn vector(self) -> u8 {
        (self.0 >> Control::NV_SHIFT) as u8
    }

    /// Returns NDST, the host APIC ID of the notification's target.
    pub const fn destination(self) -> u32 {
        (self.0 >> Control::NDST_SHIFT) as u32
    }

    /// Returns the word with `bits` set.
    pub const fn with(self, bits: u64) -> Control {
        Control(self.0 | bits)
    }

    /// Returns the word with `bits` clear.
    pub const fn without(self, bits: u64) -> Control {
        Control(self.0 & !bits)
    }
}

/// Returns the place of `vector` in PIR: the offset in bytes of its 32-bit word in the descriptor, and the bit in that
/// word.
pub const fn pir_bit(vector: u8) -> (u64, u32) {
    (PIR + (vector as u64 / 32) * 4, 1 << (vector % 32))
}

/// An entry of the PID-pointer table: the descriptor to which IPIs for one APIC ID are posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PidPointer(pub u64);

impl PidPointer {
    /// Size of an entry in bytes.
    pub const BYTES: u64 = 8;
    /// Set if a vCPU has this APIC ID.
    const VALID: u64 = 1;
    /// The address bits, 51:6. A physical address has at most 52 bits.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;

    /// Returns the entry for the descriptor at the host-physical `address`.
    pub const fn new(address: u64) -> PidPointer {
        PidPointer(address & PidPointer::ADDRESS | PidPointer::VALID)
    }

    /// Returns whether hardware follows the entry: it is valid and has no reserved bit set.
    pub const fn is_usable(self) -> bool {
        self.0 & !PidPointer::ADDRESS == PidPointer::VALID
    }

    /// Returns the host-physical address of the descriptor.
    pub const fn descriptor(self) -> u64 {
        self.0 & PidPointer::ADDRESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_the_manuals_bits() {
        let control = Control::new(0xf1, 0x12);
        assert_eq!(control.0, 0x0000_0012_00f1_0000);
        assert_eq!((CONTROL * 8 + 16, CONTROL * 8 + 32), (272, 288));
        let busy = control.with(Control::ON | Control::SN);
        assert_eq!(busy.0 & 3, 3);
        assert!(busy.is_on() && busy.is_suppressed() && !busy.without(Control::SN).is_suppressed());
        assert_eq!((busy.vector(), busy.destination()), (0xf1, 0x12));
        assert_eq!(pir_bit(0), (0, 1));
        assert_eq!(pir_bit(0xff), (28, 1 << 31));
        assert_eq!(pir_bit(0x51), (8, 1 << 17));
    }

    #[test]
    fn a_pointer_with_reserved_bits_is_not_followed() {
        let pointer = PidPointer::new(0x1_2345_67ff);
        assert_eq!(pointer.descriptor(), 0x1_2345_67c0);
        assert!(pointer.is_usable());
        assert!(!PidPointer(0x1000).is_usable());
        assert!(!PidPointer(0x1000 | 1 | 2).is_usable());
        assert!(!PidPointer(1 << 63 | 1).is_usable());
    }
}
