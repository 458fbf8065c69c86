//! AMD's Advanced Virtual Interrupt Controller (AVIC): the tables that hardware and hypervisor share, and its exits.
//!
//! ```text
//! physical APIC ID table entry     63 V  62 IsRunning  51:12 backing page  11:0 host APIC ID
//! logical APIC ID table entry      31 V  7:0 guest physical APIC ID
//! INCOMPLETE_IPI  EXITINFO1        63:32 ICR high  31:0 ICR low      EXITINFO2  63:32 id  11:0 index
//! NOACCEL         EXITINFO1        32 write  11:4 register           EXITINFO2  7:0 vector (EOI)
//! ```
//!
//! Source: AMD64 Architecture Programmer's Manual (APM) volume 2, section 15.29.

/// The address bits, 51:12, of a page in AVIC's tables and control fields.
pub const PAGE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Number of usable entries in the logical APIC ID table. Flat mode uses 0 to 7; cluster mode has clusters 0 to 14 of 4
/// entries each.
pub const LOGICAL_ENTRIES: u32 = 60;
/// Highest physical APIC ID that an xAPIC can address; 255 is the broadcast.
pub const PHYSICAL_MAX: u32 = 254;
/// Highest physical APIC ID under x2AVIC without extended tables.
pub const X2_PHYSICAL_MAX: u32 = 511;
/// Highest physical APIC ID under x2AVIC with extended tables, of 8 pages.
pub const EXTENDED_PHYSICAL_MAX: u32 = 4095;

/// An entry of the physical APIC ID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PhysicalEntry(pub u64);

impl PhysicalEntry {
    /// Size of an entry in bytes.
    pub const BYTES: u64 = 8;
    /// Set if a vCPU has this APIC ID.
    const VALID: u64 = 1 << 63;
    /// Set while the vCPU is in guest mode, or is about to be, on the CPU with the entry's host APIC ID. A doorbell to
    /// that CPU reaches the vCPU.
    pub const IS_RUNNING: u64 = 1 << 62;
    /// Mask of the host APIC ID. The first CPU models with AVIC use bits 7:0 only.
    const HOST_ID: u64 = 0xfff;

    /// Returns the entry of a stopped vCPU whose backing page is at the host-physical address `page`.
    pub const fn new(page: u64) -> PhysicalEntry {
        PhysicalEntry(PhysicalEntry::VALID | (page & PAGE_ADDRESS))
    }

    /// Returns whether a vCPU has this APIC ID.
    pub const fn is_valid(self) -> bool {
        self.0 & PhysicalEntry::VALID != 0
    }

    /// Returns whether a doorbell reaches the vCPU.
    pub const fn is_running(self) -> bool {
        self.0 & PhysicalEntry::IS_RUNNING != 0
    }

    /// Returns the host-physical address of the backing page.
    pub const fn backing_page(self) -> u64 {
        self.0 & PAGE_ADDRESS
    }

    /// Returns the APIC ID of the host CPU that runs the vCPU, or that ran it last.
    pub const fn host_id(self) -> u32 {
        (self.0 & PhysicalEntry::HOST_ID) as u32
    }

    /// Returns the entry with the vCPU running on the host CPU with APIC ID `host_id`.
    pub const fn running(self, host_id: u32) -> PhysicalEntry {
        let id = host_id as u64 & PhysicalEntry::HOST_ID;
        PhysicalEntry(self.0 & !PhysicalEntry::HOST_ID | id | PhysicalEntry::IS_RUNNING)
    }

    /// Returns the entry with the vCPU stopped. The host APIC ID stays.
    pub const fn stopped(self) -> PhysicalEntry {
        PhysicalEntry(self.0 & !PhysicalEntry::IS_RUNNING)
    }
}

/// An entry of the logical APIC ID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogicalEntry(pub u32);

impl LogicalEntry {
    /// Size of an entry in bytes.
    pub const BYTES: u64 = 4;
    /// Set if a vCPU has this logical ID.
    const VALID: u32 = 1 << 31;

    /// Returns the entry that names the vCPU with physical APIC ID `id`, 0 to 255.
    pub const fn new(id: u32) -> LogicalEntry {
        LogicalEntry(LogicalEntry::VALID | id & 0xff)
    }

    /// Returns whether a vCPU has this logical ID.
    pub const fn is_valid(self) -> bool {
        self.0 & LogicalEntry::VALID != 0
    }

    /// Returns the vCPU's physical APIC ID.
    pub const fn id(self) -> u32 {
        self.0 & 0xff
    }
}

/// Returns the index in the logical table of the one-hot logical ID `ldr` (bits 31:24 of LDR, shifted down). Returns
/// `None` if `ldr` has no bit or several, or names cluster 15.
pub const fn logical_index(ldr: u32, flat: bool) -> Option<u32> {
    let (base, bits) = if flat {
        (0, ldr & 0xff)
    } else {
        ((ldr >> 4 & 0xf) * 4, ldr & 0xf)
    };
    if bits.count_ones() != 1 || base >= LOGICAL_ENTRIES {
        return None;
    }
    Some(base + bits.trailing_zeros())
}

/// Why hardware could not deliver an IPI: bits 63:32 of the exit's EXITINFO2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum IpiFailure {
    /// The IPI is not fixed and edge-triggered, or hardware does not resolve its destination.
    InvalidType = 0,
    /// At least one target does not run. Its IRR bit is already set.
    TargetNotRunning = 1,
    /// A target is not in the tables. Nothing was delivered.
    InvalidTarget = 2,
    /// A backing page is not memory. Nothing was delivered.
    InvalidBackingPage = 3,
    /// The vector is below 16.
    InvalidVector = 4,
}

impl IpiFailure {
    /// All failures, each at the index of its number.
    pub const ALL: [IpiFailure; 5] = [
        IpiFailure::InvalidType,
        IpiFailure::TargetNotRunning,
        IpiFailure::InvalidTarget,
        IpiFailure::InvalidBackingPage,
        IpiFailure::InvalidVector,
    ];

    /// Returns the failure with number `id`, or `None` if the manual defines none.
    pub const fn of(id: u32) -> Option<IpiFailure> {
        if id < IpiFailure::ALL.len() as u32 {
            Some(IpiFailure::ALL[id as usize])
        } else {
            None
        }
    }
}

/// EXITINFO1 and EXITINFO2 of an incomplete-IPI exit (EXITCODE 0x401).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IncompleteIpi {
    /// EXITINFO1: the guest's ICR.
    pub info1: u64,
    /// EXITINFO2: the failure and the index of the table entry.
    pub info2: u64,
}

impl IncompleteIpi {
    /// Returns the exit for `icr` with `failure` at entry `index` (0 to 4095) of the searched table.
    pub const fn new(icr: u64, failure: IpiFailure, index: u32) -> IncompleteIpi {
        IncompleteIpi {
            info1: icr,
            info2: (failure as u64) << 32 | (index & 0xfff) as u64,
        }
    }

    /// Returns the low half of the ICR.
    pub const fn icr_low(self) -> u32 {
        self.info1 as u32
    }

    /// Returns the high half of the ICR.
    pub const fn icr_high(self) -> u32 {
        (self.info1 >> 32) as u32
    }

    /// Returns the number of the failure. See [`IpiFailure::of`].
    pub const fn id(self) -> u32 {
        (self.info2 >> 32) as u32
    }

    /// Returns the index of the table entry that failed. Its meaning for a multicast is uncertain.
    pub const fn index(self) -> u32 {
        self.info2 as u32 & 0xfff
    }
}

/// EXITINFO1 and EXITINFO2 of an exit for an access that is not accelerated (EXITCODE 0x402).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unaccelerated {
    /// EXITINFO1: the register and the direction of the access.
    pub info1: u64,
    /// EXITINFO2: the vector in service if the register is EOI.
    pub info2: u64,
}

impl Unaccelerated {
    /// Returns the exit for an access to the register at `offset`. `vector` is the interrupt that a write to EOI would
    /// end.
    pub const fn new(offset: u32, write: bool, vector: u8) -> Unaccelerated {
        Unaccelerated {
            info1: (write as u64) << 32 | (offset & 0xff0) as u64,
            info2: vector as u64,
        }
    }

    /// Returns the register's offset in the LAPIC page, a multiple of 16.
    pub const fn offset(self) -> u32 {
        self.info1 as u32 & 0xff0
    }

    /// Returns whether the access is a write.
    pub const fn is_write(self) -> bool {
        self.info1 >> 32 & 1 != 0
    }

    /// Returns the vector in service if the register is EOI.
    pub const fn vector(self) -> u8 {
        self.info2 as u8
    }
}

/// Returns whether an unaccelerated write to the register at `offset` is a trap: hardware stores the value, then
/// software completes the write. Other unaccelerated accesses are faults, and software emulates the instruction. A
/// write to EOI traps if the interrupt in service is level-triggered.
pub const fn is_trap(offset: u32) -> bool {
    use crate::lapic as reg;
    matches!(
        offset,
        reg::ID
            | reg::EOI
            | reg::RRD
            | reg::LDR
            | reg::DFR
            | reg::SVR
            | reg::ESR
            | reg::ICR_LOW
            | reg::LVT_TIMER
            | reg::LVT_THERMAL
            | reg::LVT_PERFORMANCE
            | reg::LVT_LINT0
            | reg::LVT_LINT1
            | reg::LVT_ERROR
            | reg::TIMER_INITIAL
            | reg::TIMER_DIVIDE
    )
}

/// The tag by which an entry of the IOMMU's log names a vCPU to the hypervisor: the numbers of VM and vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GaTag(pub u32);

impl GaTag {
    /// Width of the vCPU's number in bits. KVM has used 8, 9 and 12.
    const VCPU_BITS: u32 = 12;

    /// Returns the tag of vCPU `vcpu` (0 to 4095) of the VM with number `vm`.
    pub const fn new(vm: u32, vcpu: u32) -> GaTag {
        GaTag(vm << GaTag::VCPU_BITS | vcpu & ((1 << GaTag::VCPU_BITS) - 1))
    }

    /// Returns the VM's number.
    pub const fn vm(self) -> u32 {
        self.0 >> GaTag::VCPU_BITS
    }

    /// Returns the vCPU's number.
    pub const fn vcpu(self) -> u32 {
        self.0 & ((1 << GaTag::VCPU_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_entries_have_the_manuals_bits() {
        let entry = PhysicalEntry::new(0x000a_bcde_f123_4567);
        assert_eq!(entry.0, 0x800a_bcde_f123_4000);
        assert!(entry.is_valid() && !entry.is_running());
        let running = entry.running(0x1234);
        assert_eq!(running.0, 0xc00a_bcde_f123_4234);
        assert_eq!(running.host_id(), 0x234);
        assert_eq!(running.backing_page(), entry.backing_page());
        assert_eq!(running.stopped().0, 0x800a_bcde_f123_4234);
        assert_eq!(running.running(7).host_id(), 7);
    }

    #[test]
    fn logical_entries_have_the_manuals_bits() {
        assert_eq!(LogicalEntry::new(0x1fe).0, 0x8000_00fe);
        assert!(!LogicalEntry::default().is_valid());
        assert_eq!(LogicalEntry::new(9).id(), 9);
    }

    #[test]
    fn logical_ids_are_one_hot() {
        assert_eq!(logical_index(0x80, true), Some(7));
        assert_eq!(logical_index(0x00, true), None);
        assert_eq!(logical_index(0x03, true), None);
        assert_eq!(logical_index(0xe8, false), Some(59));
        assert_eq!(logical_index(0xf1, false), None, "cluster 15 is all clusters");
        assert_eq!(logical_index(0x20, false), None);
        assert_eq!(logical_index(0x21, false), Some(8));
    }

    #[test]
    fn exit_information_has_the_manuals_bits() {
        let exit = IncompleteIpi::new(0x0300_0000_0000_00fd, IpiFailure::InvalidTarget, 3);
        assert_eq!((exit.info1, exit.info2), (0x0300_0000_0000_00fd, 0x2_0000_0003));
        assert_eq!((exit.icr_low(), exit.icr_high()), (0xfd, 0x0300_0000));
        assert_eq!((exit.id(), exit.index()), (2, 3));
        let access = Unaccelerated::new(0xb0, true, 0x51);
        assert_eq!((access.info1, access.info2), (0x1_0000_00b0, 0x51));
        assert_eq!(
            (access.offset(), access.is_write(), access.vector()),
            (0xb0, true, 0x51)
        );
        assert!(IpiFailure::of(5).is_none());
        for (number, failure) in IpiFailure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, number);
        }
    }

    #[test]
    fn tags_keep_vm_and_vcpu_apart() {
        let tag = GaTag::new(0x12345, 0xfff);
        assert_eq!((tag.vm(), tag.vcpu()), (0x12345, 0xfff));
        assert_eq!(GaTag::new(1, 0).0, 0x1000);
    }
}
