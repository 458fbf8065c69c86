//! Whether the CPU has AVIC, and whether the host uses it (docs/spec/interrupts.md, "AVIC tables" and "AVIC
//! activation").

use holdfast_abi::cpuid;

/// KVM's module parameter `avic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AvicEnable {
    /// Not used: the default of 4.7 to 6.17 (uncertain).
    #[default]
    Off,
    /// Used if the CPU has it.
    On,
    /// Used on Zen 4 and later, with x2AVIC.
    Auto,
}

/// The features of an AMD CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SvmPart {
    /// EDX of CPUID leaf 8000_000A. 0: the CPU has no SVM.
    pub features: u32,
    /// The family of CPUID leaf 1, with the extended family added.
    pub family: u32,
}

/// The use of AVIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvicConfig {
    /// Whether the host uses AVIC, if the CPU has it (kvm_amd `avic`).
    pub enable: AvicEnable,
    /// Whether the host also uses x2AVIC, if the CPU has it (6.0). Without it a guest under AVIC is not offered x2APIC.
    ///
    /// [`AvicEnable::Auto`] implies it.
    pub x2avic: bool,
    /// The CPU it runs on.
    pub part: SvmPart,
    /// On CPUs with erratum 1235, hardware never sees IsRunning set (`enable_ipiv=0`). `false` shows the effect of the
    /// erratum.
    pub works_around_1235: bool,
    /// Software sends an IPI whose target hardware does not find. 4.7 dropped such an IPI for all its targets.
    pub sends_to_invalid: bool,
}

impl Default for AvicConfig {
    fn default() -> AvicConfig {
        AvicConfig {
            enable: AvicEnable::Off,
            x2avic: false,
            part: SvmPart::default(),
            works_around_1235: true,
            sends_to_invalid: true,
        }
    }
}

impl AvicConfig {
    fn has(&self, feature: u32) -> bool {
        self.part.features & feature != 0
    }

    /// Returns whether AVIC is used: the CPU has it and nested paging, and the parameter allows it.
    pub fn is_used(&self) -> bool {
        let able = self.has(cpuid::SVM_AVIC) && self.has(cpuid::SVM_NESTED_PAGING);
        match self.enable {
            AvicEnable::Off => false,
            AvicEnable::On => able,
            AvicEnable::Auto => able && self.part.family >= 0x19 && self.has(cpuid::SVM_X2AVIC),
        }
    }

    /// Returns whether x2AVIC is used.
    pub fn uses_x2avic(&self) -> bool {
        self.is_used() && self.has(cpuid::SVM_X2AVIC) && (self.x2avic || self.enable == AvicEnable::Auto)
    }

    /// Returns whether hardware may see IsRunning set.
    pub(crate) fn ipiv(&self) -> bool {
        let affected = matches!(self.part.family, 0x17 | 0x18);
        !(affected && self.works_around_1235)
    }
}
