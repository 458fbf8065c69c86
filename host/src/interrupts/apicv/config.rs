//! Whether the CPU has APICv, and whether the host uses it.

/// The features of an Intel CPU (VMX capability MSRs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmxPart {
    /// APIC-register virtualization, virtual-interrupt delivery and posted interrupts (Ivy Bridge-EP and later).
    pub apicv: bool,
    /// IPI virtualization (Sapphire Rapids and later).
    pub ipiv: bool,
}

/// The use of APICv.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicvConfig {
    /// kvm_intel's `enable_apicv`, which is on by default if the CPU has APICv. The default here is off, as for CPUs
    /// without it.
    pub enable: bool,
    /// kvm_intel's `enable_ipiv`, on by default since 5.19 (from memory) if the CPU has IPI virtualization.
    pub ipiv: bool,
    /// The CPU it runs on.
    pub part: VmxPart,
}

impl Default for ApicvConfig {
    fn default() -> ApicvConfig {
        ApicvConfig {
            enable: false,
            ipiv: true,
            part: VmxPart::default(),
        }
    }
}

impl ApicvConfig {
    /// Returns whether APICv is used.
    pub fn is_used(&self) -> bool {
        self.enable && self.part.apicv
    }

    /// Returns whether hardware sends IPIs.
    pub fn sends(&self) -> bool {
        self.is_used() && self.ipiv && self.part.ipiv
    }
}
