//! Why hardware does not virtualize the LAPICs of a VM.

use crate::counters::Counters;

/// A reason against AVIC, and in some cases against APICv.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Inhibit {
    /// Switched off for this VM.
    Disabled,
    /// There is no LAPIC in the kernel.
    Absent,
    /// Hyper-V's automatic EOI is used.
    Hyperv,
    /// A debugger holds back interrupts.
    BlockIrq,
    /// Two vCPUs have the same physical APIC ID. Ends when they no longer do.
    PhysicalIdAliased,
    /// The guest changed the APIC ID of a vCPU. Ends when the ID is the original one again.
    ApicIdModified,
    /// The guest moved the page of a LAPIC. Never ends, as in KVM.
    ApicBaseModified,
    /// A nested guest runs (VM-wide, 5.6 to 5.18).
    Nested,
    /// An interrupt window is needed for an interrupt from outside the LAPIC.
    IrqWindow,
    /// The timer chip reinjects interrupts and needs exits for EOI.
    PitReinject,
    /// The VM's memory is encrypted.
    Sev,
    /// Two vCPUs have the same logical APIC ID, an ID has several bits, or the logical models differ.
    LogicalIdAliased,
    /// An APIC ID is beyond the table.
    PhysicalIdTooBig,
    /// A vCPU is in x2APIC mode, and there is no x2AVIC (before 6.0).
    X2apic,
}

impl Inhibit {
    /// Returns the counter of how often it came up, or `None` if only the configuration of a VM gives it.
    pub(crate) fn counter(self, counters: &mut Counters) -> Option<&mut u64> {
        Some(match self {
            Inhibit::Hyperv => &mut counters.inhibited_hyperv,
            Inhibit::BlockIrq => &mut counters.inhibited_block_irq,
            Inhibit::PhysicalIdAliased => &mut counters.inhibited_physical_id_aliased,
            Inhibit::ApicIdModified => &mut counters.inhibited_apic_id_modified,
            Inhibit::ApicBaseModified => &mut counters.inhibited_apic_base_modified,
            Inhibit::IrqWindow => &mut counters.inhibited_irq_window,
            Inhibit::LogicalIdAliased => &mut counters.inhibited_logical_id_aliased,
            Inhibit::X2apic => &mut counters.inhibited_x2apic,
            Inhibit::Disabled
            | Inhibit::Absent
            | Inhibit::Nested
            | Inhibit::PitReinject
            | Inhibit::Sev
            | Inhibit::PhysicalIdTooBig => return None,
        })
    }
}

/// A set of inhibit reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inhibits(u32);

impl Inhibits {
    /// The empty set.
    pub const NONE: Inhibits = Inhibits(0);

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether `reason` is in the set.
    pub const fn has(self, reason: Inhibit) -> bool {
        self.0 & 1 << reason as u8 != 0
    }

    /// Adds or removes `reason`.
    pub const fn set(&mut self, reason: Inhibit, inhibited: bool) {
        if inhibited {
            self.0 |= 1 << reason as u8;
        } else {
            self.0 &= !(1 << reason as u8);
        }
    }

    /// Returns the reasons that also switch APICv off, which has other tables (`VMX_REQUIRED_APICV_INHIBITS`).
    pub(crate) const fn of_apicv(self) -> Inhibits {
        Inhibits(self.0 & APICV)
    }
}

/// The bits of these reasons.
const APICV: u32 = 1 << Inhibit::Disabled as u8
    | 1 << Inhibit::Absent as u8
    | 1 << Inhibit::Hyperv as u8
    | 1 << Inhibit::BlockIrq as u8
    | 1 << Inhibit::PhysicalIdAliased as u8
    | 1 << Inhibit::ApicIdModified as u8
    | 1 << Inhibit::ApicBaseModified as u8;
