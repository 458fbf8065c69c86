//! Hyper-V's synthetic interrupt controller (SynIC), as far as it changes how the LAPIC ends interrupts: its sources of
//! interrupts (SINTs), and their automatic EOI.
//!
//! A vector that a SINT names with automatic EOI is never in service.
//!
//! Left out: message and event pages, and with them whatever sends messages. An interrupt of such a vector comes from
//! the LAPIC itself. A guest's accesses to those registers fault.
//!
//! Sources: Hypervisor Top Level Functional Specification, "Synthetic Interrupt Controller"; for what KVM checks and
//! inhibits, `arch/x86/kvm/hyperv.c` (`synic_set_sint`, `synic_update_vector`).

use holdfast_abi::lapic::FIRST_LEGAL_VECTOR;
use holdfast_abi::msr;

/// The number of SINTs.
pub(crate) const SINTS: usize = (msr::HV_SINT_LAST - msr::HV_SINT_FIRST + 1) as usize;

/// The SynIC of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Synic {
    pub(crate) control: u64,
    pub(crate) sints: [u64; SINTS],
    /// Bit `v % 32` of word `v / 32`: vector `v` ends automatically.
    auto_eoi: [u32; 8],
}

impl Default for Synic {
    fn default() -> Synic {
        Synic {
            control: 0,
            sints: [msr::HV_SINT_MASKED; SINTS],
            auto_eoi: [0; 8],
        }
    }
}

impl Synic {
    /// Returns the value of a register, or `None` if the read faults.
    pub(crate) fn read(&self, register: u32) -> Option<u64> {
        match register {
            msr::HV_SCONTROL => Some(self.control),
            msr::HV_SVERSION => Some(1),
            msr::HV_EOM => Some(0),
            msr::HV_SINT_FIRST..=msr::HV_SINT_LAST => Some(self.sints[(register - msr::HV_SINT_FIRST) as usize]),
            _ => None,
        }
    }

    /// Writes a register. Returns `false` if that faults.
    pub(crate) fn write(&mut self, register: u32, value: u64) -> bool {
        match register {
            msr::HV_SCONTROL => self.control = value,
            msr::HV_EOM => {}
            msr::HV_SINT_FIRST..=msr::HV_SINT_LAST if is_legal(value) => {
                self.sints[(register - msr::HV_SINT_FIRST) as usize] = value;
                self.update();
            }
            _ => return false,
        }
        true
    }

    /// Takes over saved registers. Returns `false`, and changes nothing, if no guest can have written them.
    pub(crate) fn load(&mut self, control: u64, sints: [u64; SINTS]) -> bool {
        let legal = sints.iter().all(|sint| is_legal(*sint));
        if legal {
            (self.control, self.sints) = (control, sints);
            self.update();
        }
        legal
    }

    /// Returns whether an interrupt with `vector` ends when it is delivered.
    pub(crate) fn ends(&self, vector: u8) -> bool {
        self.auto_eoi[usize::from(vector / 32)] >> (vector % 32) & 1 == 1
    }

    /// Returns whether there is such a vector.
    pub(crate) fn ends_any(&self) -> bool {
        self.auto_eoi != [0; 8]
    }

    /// As in KVM, a masked SINT counts too.
    fn update(&mut self) {
        self.auto_eoi = [0; 8];
        for sint in self.sints.iter().filter(|sint| **sint & msr::HV_SINT_AUTO_EOI != 0) {
            let vector = *sint as u8;
            if vector >= FIRST_LEGAL_VECTOR {
                self.auto_eoi[usize::from(vector / 32)] |= 1 << (vector % 32);
            }
        }
    }
}

/// Returns whether a guest may write `value` to a SINT.
fn is_legal(value: u64) -> bool {
    value as u8 >= FIRST_LEGAL_VECTOR || value & msr::HV_SINT_MASKED != 0
}
