//! Whether the part has AVIC, and whether the host uses it (docs/spec/interrupts.md, "AVIC tables" and "AVIC
//! activation").

use holdfast_abi::cpuid;

use super::handshake::AvicFaults;

/// KVM's module parameter `avic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AvicEnable {
    /// Not used, whatever the part has: the default of 4.7 to 6.17 (uncertain).
    #[default]
    Off,
    /// Used if the part has it.
    On,
    /// Used on Zen 4 and later, with x2AVIC.
    Auto,
}

/// What the part says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SvmPart {
    /// EDX of CPUID leaf 8000_000A; 0 on parts without SVM.
    pub features: u32,
    /// Family, as CPUID leaf 1 has it with the extended family added.
    pub family: u32,
}

/// How the host uses AVIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvicConfig {
    /// Whether at all.
    pub enable: AvicEnable,
    /// In x2APIC mode, too, if the part can (since 6.0); else guests are not offered x2APIC. `Auto` implies it.
    pub x2avic: bool,
    /// What it runs on.
    pub part: SvmPart,
    /// On parts with erratum 1235 hardware never sees IsRunning (`enable_ipiv=0`); off to see what happens.
    pub works_around_1235: bool,
    /// An IPI to a target that hardware does not find is sent by software, as today. 4.7 ignored it, and with it all
    /// other targets.
    pub sends_to_invalid: bool,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: AvicFaults,
}

impl Default for AvicConfig {
    fn default() -> AvicConfig {
        AvicConfig {
            enable: AvicEnable::Off,
            x2avic: false,
            part: SvmPart::default(),
            works_around_1235: true,
            sends_to_invalid: true,
            faults: AvicFaults::default(),
        }
    }
}

impl AvicConfig {
    fn has(&self, feature: u32) -> bool {
        self.part.features & feature != 0
    }

    /// Returns whether AVIC is used: the part has it and nested paging, and the parameter says so.
    pub fn is_used(&self) -> bool {
        let able = self.has(cpuid::SVM_AVIC) && self.has(cpuid::SVM_NESTED_PAGING);
        match self.enable {
            AvicEnable::Off => false,
            AvicEnable::On => able,
            AvicEnable::Auto => able && self.part.family >= 0x19 && self.has(cpuid::SVM_X2AVIC),
        }
    }

    /// Returns whether x2AVIC is used, too.
    pub fn uses_x2avic(&self) -> bool {
        self.is_used() && self.has(cpuid::SVM_X2AVIC) && (self.x2avic || self.enable == AvicEnable::Auto)
    }

    /// Returns whether hardware may see IsRunning.
    pub(crate) fn ipiv(&self) -> bool {
        let affected = matches!(self.part.family, 0x17 | 0x18);
        !(affected && self.works_around_1235)
    }
}
