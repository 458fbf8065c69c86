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
    /// Whether the host uses APICv and posted interrupts, if the CPU has them (kvm_intel `enable_apicv`).
    ///
    /// The default is off, as for CPUs without it. In Linux it is on if the CPU has APICv.
    pub enable: bool,
    /// Whether hardware also sends IPIs, if the CPU can (kvm_intel `enable_ipiv`).
    ///
    /// On by default since 5.19 (from memory).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_sends_ipis_if_the_cpu_can_and_the_host_wants_it() {
        for bits in 0..16 {
            let bit = |number: u32| bits >> number & 1 == 1;
            let config = ApicvConfig {
                enable: bit(0),
                ipiv: bit(1),
                part: VmxPart {
                    apicv: bit(2),
                    ipiv: bit(3),
                },
            };
            assert_eq!(config.is_used(), bit(0) && bit(2), "{config:?}");
            assert_eq!(config.sends(), bits & 15 == 15, "{config:?}");
        }
    }
}
