//! Why hardware does not virtualize the LAPICs of a VM.

/// Why AVIC, and for some reasons APICv, cannot be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Inhibit {
    /// Switched off for this VM.
    Disabled,
    /// No LAPIC in the kernel.
    Absent,
    /// Hyper-V's automatic EOI.
    Hyperv,
    /// A debugger holds back interrupts.
    BlockIrq,
    /// Two vCPUs with one physical APIC ID, as long as they have it.
    PhysicalIdAliased,
    /// A guest gave a vCPU another APIC ID than its own, as long as it has it.
    ApicIdModified,
    /// A guest moved a LAPIC's page: forever, as in KVM.
    ApicBaseModified,
    /// A nested guest runs (VM-wide, 5.6 to 5.18).
    Nested,
    /// An interrupt window is needed for an interrupt from outside the LAPIC.
    IrqWindow,
    /// The timer chip re-injects, and needs exits for EOI.
    PitReinject,
    /// The VM's memory is encrypted.
    Sev,
    /// Two vCPUs with one logical APIC ID, an ID that is not one bit, or IDs in several models.
    LogicalIdAliased,
    /// An APIC ID beyond the table.
    PhysicalIdTooBig,
    /// A vCPU in x2APIC mode, and no x2AVIC (before 6.0).
    X2apic,
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inhibits(u32);

impl Inhibits {
    /// No reason.
    pub const NONE: Inhibits = Inhibits(0);

    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether `reason` is among them.
    pub const fn has(self, reason: Inhibit) -> bool {
        self.0 & 1 << reason as u8 != 0
    }

    /// Adds `reason`, or takes it out.
    pub const fn set(&mut self, reason: Inhibit, inhibited: bool) {
        if inhibited {
            self.0 |= 1 << reason as u8;
        } else {
            self.0 &= !(1 << reason as u8);
        }
    }

    /// Those that also switch APICv off (`VMX_REQUIRED_APICV_INHIBITS`): it has other tables.
    pub(crate) const fn of_apicv(self) -> Inhibits {
        let mut relevant = Inhibits::NONE;
        let mut at = 0;
        while at < APICV.len() {
            relevant.set(APICV[at], true);
            at += 1;
        }
        Inhibits(self.0 & relevant.0)
    }
}

const APICV: [Inhibit; 7] = [
    Inhibit::Disabled,
    Inhibit::Absent,
    Inhibit::Hyperv,
    Inhibit::BlockIrq,
    Inhibit::PhysicalIdAliased,
    Inhibit::ApicIdModified,
    Inhibit::ApicBaseModified,
];
