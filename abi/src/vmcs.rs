//! Intel's virtual-machine control structure (VMCS): the fields and exit reasons that interrupts need.
//!
//! Source: Intel SDM volume 3, appendix B "Field Encoding in VMCS", appendix C "VMX Basic Exit Reasons" and the chapter "APIC
//! Virtualization and Virtual Interrupts".

/// Posted-interrupt notification vector.
pub const NOTIFICATION_VECTOR: u32 = 0x0002;
/// Last index of the PID-pointer table.
pub const LAST_PID_INDEX: u32 = 0x0008;
/// Guest interrupt status: RVI in bits 7:0, SVI in bits 15:8.
pub const GUEST_INTERRUPT_STATUS: u32 = 0x0810;
/// Address of the virtual-APIC page.
pub const VIRTUAL_APIC_PAGE: u32 = 0x2012;
/// Address of the posted-interrupt descriptor.
pub const POSTED_DESCRIPTOR: u32 = 0x2016;
/// EOI-exit bitmap, first of four fields of 64 bits.
pub const EOI_EXIT_BITMAP: u32 = 0x201c;
/// Address of the PID-pointer table.
pub const PID_POINTER_TABLE: u32 = 0x2042;

/// Pin-based controls: process posted interrupts.
pub const PIN_POSTED_INTERRUPTS: u32 = 1 << 7;
/// Secondary controls: virtualize accesses to the APIC's page.
pub const VIRTUALIZE_APIC_ACCESSES: u32 = 1 << 0;
/// Secondary controls: virtualize x2APIC mode.
pub const VIRTUALIZE_X2APIC: u32 = 1 << 4;
/// Secondary controls: reads of most registers, and stores of writes, without an exit before.
pub const APIC_REGISTER_VIRTUALIZATION: u32 = 1 << 8;
/// Secondary controls: TPR, EOI and self-IPIs without exits, and delivery by hardware.
pub const VIRTUAL_INTERRUPT_DELIVERY: u32 = 1 << 9;
/// Tertiary controls: IPIs to one vCPU without exits.
pub const IPI_VIRTUALIZATION: u64 = 1 << 4;

/// Exit reason: the task priority fell below the threshold.
pub const EXIT_TPR_BELOW_THRESHOLD: u32 = 43;
/// Exit reason: an access to the APIC's page that is not virtualized; nothing has been done.
pub const EXIT_APIC_ACCESS: u32 = 44;
/// Exit reason: an EOI of a vector in the bitmap; the EOI has been done.
pub const EXIT_VIRTUALIZED_EOI: u32 = 45;
/// Exit reason: a write to the APIC's page whose effect is software's; the value is stored.
pub const EXIT_APIC_WRITE: u32 = 56;

/// Guest interrupt status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InterruptStatus(pub u16);

impl InterruptStatus {
    /// `requesting`: the highest vector in IRR; `servicing`: the highest in ISR; 0 for none.
    pub const fn new(requesting: u8, servicing: u8) -> InterruptStatus {
        InterruptStatus(requesting as u16 | (servicing as u16) << 8)
    }

    /// RVI, the requesting virtual interrupt.
    pub const fn requesting(self) -> u8 {
        self.0 as u8
    }

    /// SVI, the servicing virtual interrupt.
    pub const fn servicing(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

/// What of a VMCS concerns interrupts. Its layout in memory is the processor's secret, so these are fields, named as
/// the manual has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vmcs {
    /// Pin-based controls.
    pub pin: u32,
    /// Secondary processor-based controls.
    pub secondary: u32,
    /// Tertiary processor-based controls.
    pub tertiary: u64,
    /// [`GUEST_INTERRUPT_STATUS`].
    pub status: InterruptStatus,
    /// [`VIRTUAL_APIC_PAGE`], host-physical.
    pub virtual_apic_page: u64,
    /// [`POSTED_DESCRIPTOR`], host-physical.
    pub descriptor: u64,
    /// [`NOTIFICATION_VECTOR`].
    pub notification_vector: u8,
    /// [`EOI_EXIT_BITMAP`]: bit `v % 64` of field `v / 64` is vector `v`.
    pub eoi_exit: [u64; 4],
    /// [`PID_POINTER_TABLE`], host-physical.
    pub pid_table: u64,
    /// [`LAST_PID_INDEX`].
    pub last_pid_index: u16,
}

impl Vmcs {
    /// Whether hardware delivers virtual interrupts.
    pub const fn delivers_interrupts(&self) -> bool {
        self.secondary & VIRTUAL_INTERRUPT_DELIVERY != 0
    }

    /// Whether hardware processes posted interrupts.
    pub const fn processes_posted(&self) -> bool {
        self.pin & PIN_POSTED_INTERRUPTS != 0
    }

    /// Whether hardware sends IPIs.
    pub const fn sends_ipis(&self) -> bool {
        self.tertiary & IPI_VIRTUALIZATION != 0
    }

    /// Whether the end of an interrupt with `vector` exits.
    pub const fn exits_at_eoi(&self, vector: u8) -> bool {
        self.eoi_exit[(vector / 64) as usize] >> (vector % 64) & 1 != 0
    }
}

/// Whether a write to the register at `offset` of the APIC's page is virtualized at all: stored, and then emulated or trapped.
/// Others exit before anything is done (from memory of the section "Virtualizing Writes to the APIC-Access Page").
pub const fn is_virtualized_write(offset: u32) -> bool {
    use crate::lapic as reg;
    matches!(
        offset,
        reg::ID
            | reg::TPR
            | reg::EOI
            | reg::LDR
            | reg::DFR
            | reg::SVR
            | reg::ESR
            | reg::ICR_LOW
            | reg::ICR_HIGH
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

/// Whether a read of the register at `offset` is virtualized: of all that are written so, the version, and the interrupt
/// registers (from memory of the section "Virtualizing Reads from the APIC-Access Page").
pub const fn is_virtualized_read(offset: u32) -> bool {
    use crate::lapic as reg;
    is_virtualized_write(offset) || offset == reg::VERSION || (offset >= reg::ISR && offset < reg::ESR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapic as reg;

    #[test]
    fn status_has_rvi_below_svi() {
        let status = InterruptStatus::new(0x51, 0x31);
        assert_eq!(status.0, 0x3151);
        assert_eq!((status.requesting(), status.servicing()), (0x51, 0x31));
    }

    #[test]
    fn what_changes_by_itself_is_not_virtualized() {
        for offset in [reg::PPR, reg::APR, reg::RRD, reg::TIMER_CURRENT, 0x400] {
            assert!(!is_virtualized_read(offset), "{offset:#x}");
            assert!(!is_virtualized_write(offset), "{offset:#x}");
        }
        assert!(is_virtualized_read(reg::IRR + 0x70) && !is_virtualized_write(reg::IRR + 0x70));
    }
}
