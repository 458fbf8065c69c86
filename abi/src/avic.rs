//! AMD's Advanced Virtual Interrupt Controller: tables that hardware and hypervisor share, and what its exits say.
//!
//! ```text
//! physical APIC ID table entry     63 V  62 IsRunning  61 (software)  51:12 backing page  11:0 host APIC ID
//! logical APIC ID table entry      31 V  7:0 guest physical APIC ID
//! INCOMPLETE_IPI  EXITINFO1        63:32 ICR high  31:0 ICR low      EXITINFO2  63:32 id  8:0 index
//! NOACCEL         EXITINFO1        32 write  11:4 register           EXITINFO2  7:0 vector (EOI)
//! ```
//!
//! Source: AMD64 Architecture Programmer's Manual volume 2, section 15.29; Linux `arch/x86/kvm/svm/avic.c` for bit 61.

/// Bits of an address of a page in tables and control fields: 51:12.
pub const PAGE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Entries of the logical APIC ID table that can be used: flat 0 to 7, clusters 0 to 14 of 4.
pub const LOGICAL_ENTRIES: u32 = 60;
/// Physical APIC IDs that an xAPIC can address; 255 means all.
pub const PHYSICAL_MAX: u32 = 254;
/// Physical APIC IDs of x2AVIC, without extended tables.
pub const X2_PHYSICAL_MAX: u32 = 511;

/// An entry of the physical APIC ID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PhysicalEntry(pub u64);

impl PhysicalEntry {
    /// Bytes of an entry.
    pub const BYTES: u64 = 8;
    /// There is a vCPU with this APIC ID.
    pub const VALID: u64 = 1 << 63;
    /// The vCPU is in guest mode or soon will be, on the host APIC ID's CPU: a doorbell there reaches it.
    pub const IS_RUNNING: u64 = 1 << 62;
    /// KVM's own, in its copy of the entry: devices' interrupts shall be logged. Reserved in hardware.
    pub const GA_LOG_INTR: u64 = 1 << 61;
    /// Host APIC ID; bits 7:0 on the first parts.
    pub const HOST_ID: u64 = 0xfff;

    /// The entry of a vCPU that does not run, with its backing page at host-physical `page`.
    pub const fn new(page: u64) -> PhysicalEntry {
        PhysicalEntry(PhysicalEntry::VALID | (page & PAGE_ADDRESS))
    }

    /// Whether there is such a vCPU.
    pub const fn is_valid(self) -> bool {
        self.0 & PhysicalEntry::VALID != 0
    }

    /// Whether a doorbell reaches it.
    pub const fn is_running(self) -> bool {
        self.0 & PhysicalEntry::IS_RUNNING != 0
    }

    /// Host-physical address of its backing page.
    pub const fn backing_page(self) -> u64 {
        self.0 & PAGE_ADDRESS
    }

    /// Where it runs.
    pub const fn host_id(self) -> u32 {
        (self.0 & PhysicalEntry::HOST_ID) as u32
    }

    /// The same vCPU, running on the CPU with `host_id`.
    pub const fn running(self, host_id: u32) -> PhysicalEntry {
        let id = host_id as u64 & PhysicalEntry::HOST_ID;
        PhysicalEntry(self.0 & !PhysicalEntry::HOST_ID | id | PhysicalEntry::IS_RUNNING)
    }

    /// The same vCPU, not running.
    pub const fn stopped(self) -> PhysicalEntry {
        PhysicalEntry(self.0 & !PhysicalEntry::IS_RUNNING)
    }
}

/// An entry of the logical APIC ID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogicalEntry(pub u32);

impl LogicalEntry {
    /// Bytes of an entry.
    pub const BYTES: u64 = 4;
    /// There is a vCPU with this logical ID.
    pub const VALID: u32 = 1 << 31;

    /// The entry that leads to the vCPU with physical APIC ID `id`.
    pub const fn new(id: u32) -> LogicalEntry {
        LogicalEntry(LogicalEntry::VALID | id & 0xff)
    }

    /// Whether there is such a vCPU.
    pub const fn is_valid(self) -> bool {
        self.0 & LogicalEntry::VALID != 0
    }

    /// Its physical APIC ID.
    pub const fn id(self) -> u32 {
        self.0 & 0xff
    }
}

/// The entry of the logical table for the one-hot logical ID `ldr` (bits 31:24 of LDR, shifted down); `None` if it has no bit
/// or several, or is in cluster 15.
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
    /// Not fixed and edge-triggered, or a destination that hardware does not resolve.
    InvalidType = 0,
    /// At least one target does not run. Its IRR is set already.
    TargetNotRunning = 1,
    /// A target that is not in the tables: nothing was delivered.
    InvalidTarget = 2,
    /// A backing page that is not memory: nothing was delivered.
    InvalidBackingPage = 3,
    /// A vector below 16.
    InvalidVector = 4,
}

impl IpiFailure {
    /// All of them, by number.
    pub const ALL: [IpiFailure; 5] = [
        IpiFailure::InvalidType,
        IpiFailure::TargetNotRunning,
        IpiFailure::InvalidTarget,
        IpiFailure::InvalidBackingPage,
        IpiFailure::InvalidVector,
    ];

    /// The failure with number `id`.
    pub const fn of(id: u32) -> Option<IpiFailure> {
        if id < IpiFailure::ALL.len() as u32 {
            Some(IpiFailure::ALL[id as usize])
        } else {
            None
        }
    }
}

/// EXITINFO1 and EXITINFO2 of an incomplete-IPI exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IncompleteIpi {
    /// EXITINFO1: the ICR.
    pub info1: u64,
    /// EXITINFO2: why, and which entry.
    pub info2: u64,
}

impl IncompleteIpi {
    /// The exit for `icr`, because of `failure` at entry `index` of the table that was searched.
    pub const fn new(icr: u64, failure: IpiFailure, index: u32) -> IncompleteIpi {
        IncompleteIpi {
            info1: icr,
            info2: (failure as u64) << 32 | (index & 0x1ff) as u64,
        }
    }

    /// ICR, low half.
    pub const fn icr_low(self) -> u32 {
        self.info1 as u32
    }

    /// ICR, high half.
    pub const fn icr_high(self) -> u32 {
        (self.info1 >> 32) as u32
    }

    /// Number of the failure.
    pub const fn id(self) -> u32 {
        (self.info2 >> 32) as u32
    }

    /// The table entry that failed; what it means for a multicast is uncertain.
    pub const fn index(self) -> u32 {
        self.info2 as u32 & 0x1ff
    }
}

/// EXITINFO1 and EXITINFO2 of an exit for an access that is not accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unaccelerated {
    /// EXITINFO1: register and direction.
    pub info1: u64,
    /// EXITINFO2: the vector, for EOI.
    pub info2: u64,
}

impl Unaccelerated {
    /// The exit for an access to the register at `offset`; `vector` is what a write of EOI would end.
    pub const fn new(offset: u32, write: bool, vector: u8) -> Unaccelerated {
        Unaccelerated {
            info1: (write as u64) << 32 | (offset & 0xff0) as u64,
            info2: vector as u64,
        }
    }

    /// The register, a multiple of 16.
    pub const fn offset(self) -> u32 {
        self.info1 as u32 & 0xff0
    }

    /// Whether it is written.
    pub const fn is_write(self) -> bool {
        self.info1 >> 32 & 1 != 0
    }

    /// The vector in service, for EOI.
    pub const fn vector(self) -> u8 {
        self.info2 as u8
    }
}

/// Writes to these are completed by software after hardware has stored the value; others that are not accelerated are faults,
/// and software emulates the instruction. EOI is one of these if the interrupt in service is level-triggered.
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

/// What tells the hypervisor, in the IOMMU's log, whose interrupt came: the VM's number and the vCPU's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GaTag(pub u32);

impl GaTag {
    /// Bits of the vCPU's number; KVM has had 8, 9 and 12.
    pub const VCPU_BITS: u32 = 9;

    /// The tag of vCPU `vcpu` of the VM with number `vm`.
    pub const fn new(vm: u32, vcpu: u32) -> GaTag {
        GaTag(vm << GaTag::VCPU_BITS | vcpu & ((1 << GaTag::VCPU_BITS) - 1))
    }

    /// The VM's number.
    pub const fn vm(self) -> u32 {
        self.0 >> GaTag::VCPU_BITS
    }

    /// The vCPU's number.
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
    fn exits_say_what_the_manual_has_them_say() {
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
        let tag = GaTag::new(0x12345, 0x1ff);
        assert_eq!((tag.vm(), tag.vcpu()), (0x12345, 0x1ff));
        assert_eq!(GaTag::new(1, 0).0, 0x200);
    }
}
