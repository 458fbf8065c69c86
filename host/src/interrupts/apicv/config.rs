//! Whether the part has APIC virtualization, and whether the host uses it.

use super::posting::PostingFaults;

/// What the part can do (VMX capability MSRs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmxPart {
    /// APIC-register virtualization, virtual-interrupt delivery and posted interrupts (Ivy Bridge-EP and later).
    pub apicv: bool,
    /// IPI virtualization (Sapphire Rapids and later).
    pub ipiv: bool,
}

/// How the host uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicvConfig {
    /// kvm_intel's `enable_apicv`: on by default since it exists, if the part can; here off, as on parts that cannot.
    pub enable: bool,
    /// kvm_intel's `enable_ipiv`: on by default since 5.19 (from memory), if the part can.
    pub ipiv: bool,
    /// What it runs on.
    pub part: VmxPart,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: PostingFaults,
}

impl Default for ApicvConfig {
    fn default() -> ApicvConfig {
        ApicvConfig {
            enable: false,
            ipiv: true,
            part: VmxPart::default(),
            faults: PostingFaults::default(),
        }
    }
}

impl ApicvConfig {
    /// Returns whether APICv is used.
    pub fn is_used(&self) -> bool {
        self.enable && self.part.apicv
    }

    /// Returns whether hardware sends IPIs, too.
    pub fn sends(&self) -> bool {
        self.is_used() && self.ipiv && self.part.ipiv
    }
}
