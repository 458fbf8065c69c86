//! A guest's accesses to its LAPIC.

use holdfast_abi::lapic as reg;
use holdfast_abi::lapic::DeliveryMode;
use holdfast_abi::{Memory, vmcs};

use super::{Apicv, Notification};
use crate::avic::by_msr;

/// An exit of APIC virtualization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// Reason 44: the access is not virtualized and has had no effect. Software emulates the instruction.
    Access {
        /// Offset of the register in the page, in bytes.
        offset: u32,
        /// Whether the access is a write.
        write: bool,
    },
    /// Reason 56: the value is stored and the instruction complete. Software carries out the effect.
    Write {
        /// Offset of the register in the page, in bytes.
        offset: u32,
    },
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write is complete.
    Done,
    /// The write is complete, and may have made a pending interrupt deliverable ([`Apicv::pending`]).
    Evaluate,
    /// The write has posted an IPI. The notification must be sent, if there is one.
    Posted(Option<Notification>),
    /// The write exits.
    Exit(Exit),
}

impl<M: Memory> Apicv<'_, M> {
    /// Reads the register at `offset` for the guest.
    ///
    /// # Errors
    /// Returns the exit if software must emulate the read.
    #[inline]
    pub fn read(&self, offset: u32) -> Result<u32, Exit> {
        // Without register virtualization only TPR is read from the page.
        let all = self.vmcs.secondary & vmcs::APIC_REGISTER_VIRTUALIZATION != 0;
        let virtualized = if all {
            offset.is_multiple_of(16) && vmcs::is_virtualized_read(offset)
        } else {
            offset == reg::TPR
        };
        if virtualized {
            Ok(self.get(offset))
        } else {
            Err(Exit::Access { offset, write: false })
        }
    }

    /// Writes `value` to the register at `offset` for the guest.
    #[inline]
    pub fn write(&mut self, offset: u32, value: u32) -> WriteOutcome {
        let all = self.vmcs.secondary & vmcs::APIC_REGISTER_VIRTUALIZATION != 0;
        let by_delivery = matches!(offset, reg::TPR | reg::EOI | reg::ICR_LOW);
        let by_registers = all && offset.is_multiple_of(16) && vmcs::is_virtualized_write(offset);
        if !(by_delivery || by_registers) {
            return WriteOutcome::Exit(Exit::Access { offset, write: true });
        }
        match offset {
            reg::TPR => {
                self.set(reg::TPR, value & 0xff);
                self.update_priority();
                WriteOutcome::Evaluate
            }
            reg::EOI => {
                self.set(reg::EOI, 0);
                self.end_of_interrupt()
            }
            reg::ICR_LOW => {
                self.set(reg::ICR_LOW, value);
                self.command(value, self.get(reg::ICR_HIGH) >> 24)
            }
            reg::ICR_HIGH => {
                self.set(reg::ICR_HIGH, value);
                WriteOutcome::Done
            }
            _ => {
                self.set(offset, value);
                WriteOutcome::Exit(Exit::Write { offset })
            }
        }
    }

    /// Writes `value` by WRMSR to the register at `offset` for the guest, if software does not intercept it. Returns
    /// `None` if hardware leaves the write to software, which raises the fault.
    pub fn write_msr(&mut self, offset: u32, value: u64) -> Option<WriteOutcome> {
        match offset {
            reg::ICR_LOW => Some(self.write_icr(value)),
            reg::SELF_IPI if value <= 0xff => Some(self.write_self_ipi(value as u32)),
            reg::EOI if value == 0 => Some(self.write(offset, 0)),
            reg::TPR if value <= 0xff => Some(self.write(offset, value as u32)),
            _ => None,
        }
    }

    /// Reads the register at `offset` by RDMSR for the guest, or returns `None` if hardware leaves the read to
    /// software.
    pub fn read_msr(&self, offset: u32) -> Option<u64> {
        by_msr(offset, self.read(offset).ok(), || self.get(reg::ICR_HIGH))
    }

    /// Writes the 64-bit ICR of x2APIC mode for the guest. Software does not intercept this MSR if hardware sends IPIs.
    pub fn write_icr(&mut self, value: u64) -> WriteOutcome {
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.set(reg::ICR_LOW, low);
        self.set(reg::ICR_HIGH, high);
        self.command(low, high)
    }

    /// Writes `value` to x2APIC's self-IPI register for the guest.
    pub(super) fn write_self_ipi(&mut self, value: u32) -> WriteOutcome {
        // Hardware virtualizes the write only if bits 31:8 are 0 and the vector is at least 16.
        if value >> 8 == 0 && value as u8 >= reg::FIRST_LEGAL_VECTOR {
            self.self_ipi(value as u8)
        } else {
            WriteOutcome::Exit(Exit::Write { offset: reg::SELF_IPI })
        }
    }

    fn command(&mut self, low: u32, destination: u32) -> WriteOutcome {
        let traps = WriteOutcome::Exit(Exit::Write { offset: reg::ICR_LOW });
        let vector = low as u8;
        let plain = DeliveryMode::of(low) == DeliveryMode::Fixed && low & reg::ICR_LEVEL == 0;
        if !plain || vector < reg::FIRST_LEGAL_VECTOR {
            return traps;
        }
        match low & reg::ICR_SHORTHAND {
            reg::ICR_SHORTHAND_SELF => self.self_ipi(vector),
            reg::ICR_SHORTHAND_NONE if low & reg::ICR_LOGICAL == 0 && self.vmcs.sends_ipis() => {
                self.send(destination, vector).map_or(traps, WriteOutcome::Posted)
            }
            _ => traps,
        }
    }
}
