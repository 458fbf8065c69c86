//! Intel's posted interrupts and IPI virtualization: the descriptor and the table that hardware and hypervisor share.
//!
//! ```text
//! posted-interrupt descriptor, 64 bytes
//!   bits 255:0    PIR: the vectors posted
//!   bit  256      ON: a notification is on its way
//!   bit  257      SN: whoever posts need not notify
//!   bits 279:272  NV: vector of the notification
//!   bits 319:288  NDST: host APIC ID that it goes to (xAPIC: bits 15:8 of it)
//! PID-pointer table entry, 8 bytes
//!   bits 63:6     address of the descriptor     bit 0  valid
//! ```
//!
//! Source: Intel SDM volume 3, section "Posted-Interrupt Processing" and section "IPI Virtualization"; NV, NDST and SN are the
//! VT-d specification's, section "Posted Interrupt Descriptor".

/// Bytes of a descriptor, and what its address is aligned to.
pub const DESCRIPTOR_BYTES: u64 = 64;
/// Where PIR begins: eight words of 32 bits.
pub const PIR: u64 = 0;
/// Where the 64 bits with ON, SN, NV and NDST are, which [`Control`] is.
pub const CONTROL: u64 = 32;

/// KVM's notification to a CPU in guest mode (`POSTED_INTR_VECTOR`).
pub const NOTIFICATION_VECTOR: u8 = 0xf2;
/// KVM's notification for a vCPU that sleeps (`POSTED_INTR_WAKEUP_VECTOR`).
pub const WAKEUP_VECTOR: u8 = 0xf1;

/// Bits 319:256 of a descriptor: whether, how and where to notify. Changed in one step, since several do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Control(pub u64);

impl Control {
    /// A notification is on its way, or PIR has not been looked at since.
    pub const ON: u64 = 1 << 0;
    /// Whoever posts need not notify.
    pub const SN: u64 = 1 << 1;
    const NV_SHIFT: u32 = 16;
    const NDST_SHIFT: u32 = 32;

    /// Notifies host CPU `destination` with `vector`; nothing is on its way.
    pub const fn new(vector: u8, destination: u32) -> Control {
        Control((destination as u64) << Control::NDST_SHIFT | (vector as u64) << Control::NV_SHIFT)
    }

    /// Whether a notification is on its way.
    pub const fn is_on(self) -> bool {
        self.0 & Control::ON != 0
    }

    /// Whether notifications are suppressed.
    pub const fn is_suppressed(self) -> bool {
        self.0 & Control::SN != 0
    }

    /// NV.
    pub const fn vector(self) -> u8 {
        (self.0 >> Control::NV_SHIFT) as u8
    }

    /// NDST, the host APIC ID.
    pub const fn destination(self) -> u32 {
        (self.0 >> Control::NDST_SHIFT) as u32
    }

    /// The same with `bits` set.
    pub const fn with(self, bits: u64) -> Control {
        Control(self.0 | bits)
    }

    /// The same with `bits` clear.
    pub const fn without(self, bits: u64) -> Control {
        Control(self.0 & !bits)
    }
}

/// The word of PIR, from the descriptor's beginning, and the bit in it that `vector` has.
pub const fn pir_bit(vector: u8) -> (u64, u32) {
    (PIR + (vector as u64 / 32) * 4, 1 << (vector % 32))
}

/// An entry of the PID-pointer table: whose descriptor the IPIs for an APIC ID go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PidPointer(pub u64);

impl PidPointer {
    /// Bytes of an entry.
    pub const BYTES: u64 = 8;
    /// There is a vCPU with this APIC ID.
    pub const VALID: u64 = 1;
    /// Address bits: 51:6 (a physical address has at most 52).
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;

    /// The entry that leads to the descriptor at host-physical `address`.
    pub const fn new(address: u64) -> PidPointer {
        PidPointer(address & PidPointer::ADDRESS | PidPointer::VALID)
    }

    /// Whether hardware follows it: valid, and no reserved bit set.
    pub const fn is_usable(self) -> bool {
        self.0 & !PidPointer::ADDRESS == PidPointer::VALID
    }

    /// Host-physical address of the descriptor.
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
