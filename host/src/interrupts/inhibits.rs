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
    /// All reasons, in the order of their bits in a set.
    pub const ALL: [Inhibit; 14] = [
        Inhibit::Disabled,
        Inhibit::Absent,
        Inhibit::Hyperv,
        Inhibit::BlockIrq,
        Inhibit::PhysicalIdAliased,
        Inhibit::ApicIdModified,
        Inhibit::ApicBaseModified,
        Inhibit::Nested,
        Inhibit::IrqWindow,
        Inhibit::PitReinject,
        Inhibit::Sev,
        Inhibit::LogicalIdAliased,
        Inhibit::PhysicalIdTooBig,
        Inhibit::X2apic,
    ];

    /// Returns its name in KVM's tracepoint `kvm_apicv_inhibit_changed`.
    pub const fn name(self) -> &'static str {
        match self {
            Inhibit::Disabled => "disabled",
            Inhibit::Absent => "absent",
            Inhibit::Hyperv => "hyperv",
            Inhibit::BlockIrq => "blockirq",
            Inhibit::PhysicalIdAliased => "physical_id_aliased",
            Inhibit::ApicIdModified => "apic_id_modified",
            Inhibit::ApicBaseModified => "apic_base_modified",
            Inhibit::Nested => "nested",
            Inhibit::IrqWindow => "irqwin",
            Inhibit::PitReinject => "pit_reinj",
            Inhibit::Sev => "sev",
            Inhibit::LogicalIdAliased => "logical_id_aliased",
            Inhibit::PhysicalIdTooBig => "physical_id_too_big",
            Inhibit::X2apic => "x2apic",
        }
    }

    /// Returns the reason with that name.
    pub fn by_name(name: &str) -> Option<Inhibit> {
        Inhibit::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the counter of how often it came up, or `None` if only the configuration of a VM gives it.
    pub(crate) fn counter(self, counters: &mut Counters) -> Option<&mut u64> {
        Some(match self {
            Inhibit::BlockIrq => &mut counters.inhibited_block_irq,
            Inhibit::PhysicalIdAliased => &mut counters.inhibited_physical_id_aliased,
            Inhibit::ApicIdModified => &mut counters.inhibited_apic_id_modified,
            Inhibit::ApicBaseModified => &mut counters.inhibited_apic_base_modified,
            Inhibit::LogicalIdAliased => &mut counters.inhibited_logical_id_aliased,
            Inhibit::X2apic => &mut counters.inhibited_x2apic,
            Inhibit::Disabled
            | Inhibit::Absent
            | Inhibit::Hyperv
            | Inhibit::Nested
            | Inhibit::IrqWindow
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

    /// Returns its reasons, in the order of [`Inhibit::ALL`].
    pub fn reasons(self) -> impl Iterator<Item = Inhibit> {
        Inhibit::ALL.into_iter().filter(move |reason| self.has(*reason))
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
