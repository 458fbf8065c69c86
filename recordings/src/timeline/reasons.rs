//! What the reasons of exits say about a vCPU.

use crate::read::exit_name;

/// Bits of a VMX reason that number it. The others are flags.
const VMX_BASIC: u32 = 0xffff;

/// Returns the name of `reason`, or its number. `isa`: 1 for VMX, 2 for SVM, 0 if it is not known.
pub fn name(reason: u32, isa: u32) -> String {
    exit_name(isa, reason).unwrap_or_else(|| format!("{reason:#x}"))
}

/// Returns whether `reason` is `vmx` or `svm`. Where the kind of CPU is not known, both count: the codes asked for do
/// not stand for something else on the other.
fn either(reason: u32, isa: u32, vmx: u32, svm: u32) -> bool {
    (isa != 2 && reason & VMX_BASIC == vmx) || (isa != 1 && reason == svm)
}

/// Returns whether an exit was for HLT or MWAIT.
pub fn is_halt(reason: u32, isa: u32) -> bool {
    either(reason, isa, 12, 0x78) || either(reason, isa, 36, 0x8b)
}

/// Returns whether an exit was for a loop of PAUSE.
pub fn is_pause(reason: u32, isa: u32) -> bool {
    either(reason, isa, 40, 0x77)
}

/// Returns whether an exit was for an interrupt of the host.
pub fn is_interrupt(reason: u32, isa: u32) -> bool {
    either(reason, isa, 1, 0x60)
}

/// Returns whether a vCPU can wake another one in an exit: by a hypercall, a write to an MSR or to its APIC, or an IPI
/// that the hardware does not deliver (SDM volume 3, appendix C; APM volume 2, appendix C).
pub fn can_send(reason: u32, isa: u32) -> bool {
    let vmx = [18, 32, 44, 56].contains(&(reason & VMX_BASIC));
    let svm = [0x7c, 0x81, 0x400, 0x401, 0x402].contains(&reason);
    (isa != 2 && vmx) || (isa != 1 && svm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_vendors_are_known_and_flags_ignored() {
        assert_eq!(name(0x8000_000c, 1), name(12, 1));
        assert_eq!(name(0x78, 0), "0x78");
        assert!(is_halt(12, 1) && is_halt(0x78, 2) && is_halt(0x78, 0) && !is_halt(12, 2));
        assert!(is_halt(0x8000_000c, 1));
        assert!(is_pause(40, 1) && is_pause(0x77, 2) && !is_pause(0x77, 1));
        assert!(can_send(32, 1) && can_send(0x81, 2) && !can_send(32, 2) && !can_send(12, 1));
        assert!(is_interrupt(1, 1) && is_interrupt(0x60, 2) && !is_interrupt(1, 2));
    }
}
