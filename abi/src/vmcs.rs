//! Intel's virtual-machine control structure (VMCS): the controls and fields for interrupts.
//!
//! Source: Intel SDM volume 3, appendix B "Field Encoding in VMCS", appendix C "VMX Basic Exit Reasons" and chapter
//! "APIC Virtualization and Virtual Interrupts".

/// Pin-based control: process posted interrupts.
pub const PIN_POSTED_INTERRUPTS: u32 = 1 << 7;
/// Secondary control: virtualize accesses to the LAPIC page.
pub const VIRTUALIZE_APIC_ACCESSES: u32 = 1 << 0;
/// Secondary control: virtualize x2APIC mode.
pub const VIRTUALIZE_X2APIC: u32 = 1 << 4;
/// Secondary control: most reads do not exit, and most writes are stored before they exit.
pub const APIC_REGISTER_VIRTUALIZATION: u32 = 1 << 8;
/// Secondary control: writes of TPR, EOI and self-IPIs do not exit, and hardware delivers interrupts.
pub const VIRTUAL_INTERRUPT_DELIVERY: u32 = 1 << 9;
/// Tertiary control: IPIs to one vCPU do not exit.
pub const IPI_VIRTUALIZATION: u64 = 1 << 4;

/// Guest interrupt status: RVI in bits 7:0, SVI in bits 15:8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InterruptStatus(pub u16);

impl InterruptStatus {
    /// Returns the status whose RVI is `requesting`, the highest vector in IRR, and whose SVI is `servicing`, the
    /// highest vector in ISR. 0 stands for no vector.
    pub const fn new(requesting: u8, servicing: u8) -> InterruptStatus {
        InterruptStatus(requesting as u16 | (servicing as u16) << 8)
    }

    /// Returns RVI, the requesting virtual interrupt.
    pub const fn requesting(self) -> u8 {
        self.0 as u8
    }

    /// Returns SVI, the servicing virtual interrupt.
    pub const fn servicing(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

/// The VMCS fields for interrupts. Intel does not document the layout in memory, so this is a plain struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vmcs {
    /// Pin-based controls.
    pub pin: u32,
    /// Secondary processor-based controls.
    pub secondary: u32,
    /// Tertiary processor-based controls.
    pub tertiary: u64,
    /// Guest interrupt status (field 0x0810).
    pub status: InterruptStatus,
    /// Host-physical address of the virtual-APIC page (field 0x2012).
    pub virtual_apic_page: u64,
    /// Host-physical address of the posted-interrupt descriptor, aligned to 64 bytes (field 0x2016).
    pub descriptor: u64,
    /// Posted-interrupt notification vector (field 0x0002).
    pub notification_vector: u8,
    /// Host-physical address of the PID-pointer table (field 0x2042).
    pub pid_table: u64,
    /// Last index in the PID-pointer table (field 0x0008).
    pub last_pid_index: u16,
}

impl Vmcs {
    /// Returns whether hardware delivers virtual interrupts.
    pub const fn delivers_interrupts(&self) -> bool {
        self.secondary & VIRTUAL_INTERRUPT_DELIVERY != 0
    }

    /// Returns whether hardware processes posted interrupts.
    pub const fn processes_posted(&self) -> bool {
        self.pin & PIN_POSTED_INTERRUPTS != 0
    }

    /// Returns whether hardware sends IPIs to other vCPUs.
    pub const fn sends_ipis(&self) -> bool {
        self.tertiary & IPI_VIRTUALIZATION != 0
    }
}

/// Returns whether hardware virtualizes a write to the register at `offset` of the LAPIC page: it stores the value,
/// then emulates the effect or exits. Other writes exit before they have any effect.
///
/// Source: SDM volume 3, section "Virtualizing Writes to the APIC-Access Page"; not verified against the manual.
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

/// Returns whether hardware virtualizes a read of the register at `offset` of the LAPIC page: the registers whose
/// writes are virtualized, the version, ISR, TMR and IRR.
///
/// Source: SDM volume 3, section "Virtualizing Reads from the APIC-Access Page"; not verified against the manual.
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
    fn registers_that_hardware_changes_are_not_virtualized() {
        for offset in [reg::PPR, reg::APR, reg::RRD, reg::TIMER_CURRENT, 0x400] {
            assert!(!is_virtualized_read(offset), "{offset:#x}");
            assert!(!is_virtualized_write(offset), "{offset:#x}");
        }
        assert!(is_virtualized_read(reg::IRR + 0x70) && !is_virtualized_write(reg::IRR + 0x70));
    }
}
