//! The features that KVM offers, and hypercalls.

#![expect(unsafe_code, reason = "hypercalls are inline assembly")]

use core::arch::asm;

use holdfast_abi::cpuid;
use holdfast_locks::Environment;

use crate::instructions;

/// EBX of CPUID leaf 0 of CPUs from AMD and Hygon: "Auth", "Hygo".
const AMD_FAMILY: [u32; 2] = [0x6874_7541, 0x6f67_7948];

/// The hypervisor's features, read once at boot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hypervisor {
    /// Whether there is a hypervisor.
    present: bool,
    /// EAX of KVM's feature leaf, or 0 under another hypervisor.
    features: u32,
    /// EDX of KVM's feature leaf, the hints.
    hints: u32,
    /// Whether the hypercall instruction is VMMCALL and not VMCALL.
    vmmcall: bool,
}

impl Hypervisor {
    /// Reads the features from CPUID. Another interface can precede KVM's, so bases are tried in steps of 0x100, as in
    /// Linux.
    pub(crate) fn discover() -> Hypervisor {
        let vendor = instructions::cpuid(cpuid::BASIC)[1];
        let vmmcall = AMD_FAMILY.contains(&vendor);
        if instructions::cpuid(cpuid::FEATURES)[2] & cpuid::HYPERVISOR == 0 {
            return Hypervisor {
                vmmcall,
                ..Hypervisor::default()
            };
        }
        let bases = (cpuid::HYPERVISOR_BASE..cpuid::HYPERVISOR_BASE + 0x1_0000).step_by(0x100);
        // Each CPUID is an exit, so at most four bases are tried. KVM is nearly always at the first one.
        for base in bases.take(4) {
            if instructions::cpuid(base)[1..] == cpuid::KVM_SIGNATURE {
                let leaf = instructions::cpuid(base + 1);
                return Hypervisor {
                    present: true,
                    features: leaf[0],
                    hints: leaf[3],
                    vmmcall,
                };
            }
        }
        Hypervisor {
            present: true,
            vmmcall,
            ..Hypervisor::default()
        }
    }

    /// Returns whether KVM offers `feature`, one of `cpuid::KVM_FEATURE_*`.
    pub(crate) fn offers(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// Returns the inputs for the choice of a lock.
    pub(crate) fn environment(&self, cpus: u32, nopvspin: bool) -> Environment {
        Environment {
            hypervisor: self.present,
            pv_unhalt: self.offers(cpuid::KVM_FEATURE_PV_UNHALT),
            realtime_hint: self.hints & cpuid::KVM_HINTS_REALTIME != 0,
            cpus,
            nopvspin,
        }
    }

    /// Executes a hypercall (docs/spec/guest-host-interface.md, "Hypercalls"). Number and result are in RAX, the
    /// arguments in RBX, RCX, RDX and RSI.
    pub(crate) fn call(&self, number: u32, [a, b, c, d]: [u64; 4]) -> i64 {
        let result;
        // The compiler reserves RBX, so the argument is exchanged with it before and after the call.
        if self.vmmcall {
            // SAFETY: KVM changes RAX only, and writes only to memory that the guest has registered with it.
            unsafe {
                asm!("xchg rbx, {a}", "vmmcall", "xchg rbx, {a}", a = inout(reg) a => _,
                    inlateout("rax") u64::from(number) => result, in("rcx") b, in("rdx") c, in("rsi") d,
                    options(nostack));
            }
        } else {
            // SAFETY: as above.
            unsafe {
                asm!("xchg rbx, {a}", "vmcall", "xchg rbx, {a}", a = inout(reg) a => _,
                    inlateout("rax") u64::from(number) => result, in("rcx") b, in("rdx") c, in("rsi") d,
                    options(nostack));
            }
        }
        result
    }
}
