//! What KVM offers, and calls to it.

#![expect(unsafe_code, reason = "hypercalls are inline assembly")]

use core::arch::asm;

use holdfast_abi::cpuid;
use holdfast_locks::Environment;

use crate::instructions;

/// EBX of leaf 0 of AMD's CPUs and of Hygon's: "Auth", "Hygo".
const AMD_FAMILY: [u32; 2] = [0x6874_7541, 0x6f67_7948];

/// What the hypervisor offers, read once at boot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hypervisor {
    /// Whether there is one.
    present: bool,
    /// EAX of KVM's feature leaf; 0 under anything else.
    features: u32,
    /// EDX of it.
    hints: u32,
    /// Hypercalls are VMMCALL, not VMCALL.
    vmmcall: bool,
}

impl Hypervisor {
    /// Asks CPUID. Other interfaces can come before KVM's: bases are tried in steps of 0x100, as Linux does.
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
        // Each look is an exit: the first base nearly always answers, and one that says nothing ends the search early.
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

    /// Whether it offers `feature`, one of `cpuid::KVM_FEATURE_*`.
    pub(crate) fn offers(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// What the choice of a lock goes by.
    pub(crate) fn environment(&self, cpus: u32, nopvspin: bool) -> Environment {
        Environment {
            hypervisor: self.present,
            pv_unhalt: self.offers(cpuid::KVM_FEATURE_PV_UNHALT),
            realtime_hint: self.hints & cpuid::KVM_HINTS_REALTIME != 0,
            cpus,
            nopvspin,
        }
    }

    /// A hypercall (docs/spec/guest-host-interface.md, "Hypercalls": number and result in RAX, arguments in RBX, RCX,
    /// RDX, RSI).
    pub(crate) fn call(&self, number: u32, [a, b, c, d]: [u64; 4]) -> i64 {
        let result;
        // RBX is the compiler's own: the argument is exchanged for it, and back.
        if self.vmmcall {
            // SAFETY: KVM changes RAX only; what memory it touches was registered with it by who calls.
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
