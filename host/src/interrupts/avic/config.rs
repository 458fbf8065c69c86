//! Whether the CPU has AVIC, and whether the host uses it (docs/spec/interrupts.md, "AVIC tables" and "AVIC
//! activation").

use holdfast_abi::{avic, cpuid};

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

/// The version of KVM's driver for AVIC (docs/spec/interrupts.md, "AVIC drivers").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AvicDriver {
    /// The driver as merged in 4.7, and as posted before in "PART1 RFC v4".
    ///
    /// It tests IsRunning where the present one tests whether the vCPU is in guest mode, rings the doorbell of its own
    /// pCPU too, drops an IPI that has an invalid target, does not know erratum 1235, and leaves the interrupts of
    /// devices to the host.
    Linux4_7,
    /// The driver of 2026.
    #[default]
    Now,
}

/// The features of an AMD CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SvmPart {
    /// EDX of CPUID leaf 8000_000A. 0: the CPU has no SVM.
    pub features: u32,
    /// The family of CPUID leaf 1, with the extended family added.
    pub family: u32,
    /// AVIC's tables under x2AVIC have 4096 entries instead of 512 (ECX of that leaf; uncertain).
    pub extended_tables: bool,
}

/// The use of AVIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvicConfig {
    /// Whether the host uses AVIC, if the CPU has it (kvm_amd `avic`).
    pub enable: AvicEnable,
    /// Whether the host also uses x2AVIC, if the CPU has it (6.0). Without it a guest under AVIC is not offered x2APIC.
    ///
    /// [`AvicEnable::Auto`] implies it.
    pub x2avic: bool,
    /// Whether x2APIC is offered on a CPU without x2AVIC ("hybrid", 6.0). A vCPU in x2APIC mode then leaves the guest
    /// for each access to its LAPIC, and interrupts reach it by doorbell.
    ///
    /// Without it a guest under AVIC without x2AVIC is not offered x2APIC.
    pub hybrid: bool,
    /// Version of the driver for AVIC.
    pub driver: AvicDriver,
    /// The CPU it runs on.
    pub part: SvmPart,
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
            AvicEnable::Auto => {
                self.driver == AvicDriver::Now && able && self.part.family >= 0x19 && self.has(cpuid::SVM_X2AVIC)
            }
        }
    }

    /// Returns whether x2AVIC is used. The driver of 4.7 does not know it.
    pub fn uses_x2avic(&self) -> bool {
        let asked = self.x2avic || self.enable == AvicEnable::Auto;
        self.is_used() && self.has(cpuid::SVM_X2AVIC) && asked && self.driver == AvicDriver::Now
    }

    /// Returns whether vCPUs may be in x2APIC mode while AVIC, which has no such mode, delivers their interrupts.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.hybrid && self.driver == AvicDriver::Now && !self.uses_x2avic()
    }

    /// Returns the highest APIC ID that the tables can have.
    pub(crate) fn max_id(&self) -> u32 {
        match (self.uses_x2avic(), self.part.extended_tables) {
            (false, _) => avic::PHYSICAL_MAX,
            (true, false) => avic::X2_PHYSICAL_MAX,
            (true, true) => avic::EXTENDED_PHYSICAL_MAX,
        }
    }

    /// Returns whether hardware may see IsRunning set (`enable_ipiv`). It may not on CPUs with erratum 1235, which the
    /// driver of 4.7 does not know.
    pub(crate) fn ipiv(&self) -> bool {
        let affected = matches!(self.part.family, 0x17 | 0x18);
        !(affected && self.driver == AvicDriver::Now)
    }
}
