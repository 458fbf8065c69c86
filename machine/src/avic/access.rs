//! Register accesses: which ones hardware completes, and which ones exit (docs/spec/interrupts.md, "AVIC register
//! access").

use holdfast_abi::Memory;
use holdfast_abi::avic::{Unaccelerated, is_trap};
use holdfast_abi::lapic as reg;

use super::Avic;

/// The way in which hardware handles a register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Hardware reads or writes the backing page. The access has no other effect.
    Direct,
    /// Hardware writes the backing page and carries out the register's effect.
    Accelerated,
    /// Hardware writes the backing page and completes the instruction. Then an exit lets software carry out the effect.
    Trap,
    /// Hardware changes nothing and exits. Software emulates the instruction.
    Fault,
}

/// Returns how hardware handles an access to the register at `offset`. EOI, accelerated here, traps if the interrupt in
/// service is level-triggered.
///
/// Not verified against the manual: reads of APR, of the timer's current count and of extended registers fault, and so
/// do writes to APR and PPR.
pub const fn access(offset: u32, write: bool) -> Access {
    const DIRECT_READ: &[u32] = &[reg::VERSION, reg::TPR, reg::PPR, reg::ICR_HIGH];
    if !offset.is_multiple_of(16) || offset >= 0x400 {
        return Access::Fault;
    }
    match (offset, write) {
        (reg::TPR | reg::EOI | reg::ICR_LOW, true) => Access::Accelerated,
        (reg::ICR_HIGH, true) => Access::Direct,
        (_, true) if is_trap(offset) => Access::Trap,
        (_, true) => Access::Fault,
        (reg::ISR..=0x270, false) => Access::Direct,
        (_, false) if is_trap(offset) => Access::Direct,
        _ => {
            let mut index = 0;
            while index < DIRECT_READ.len() {
                if DIRECT_READ[index] == offset {
                    return Access::Direct;
                }
                index += 1;
            }
            Access::Fault
        }
    }
}

/// Returns whether hardware accepts a WRMSR of `value` to the register at `offset` in x2APIC mode. Otherwise the WRMSR
/// is left to software, which raises a fault for reserved values and read-only registers.
pub const fn accepts_wrmsr(offset: u32, value: u64) -> bool {
    let only_zero = matches!(offset, reg::EOI | reg::ESR);
    let fits = value <= u32::MAX as u64 && !(only_zero && value != 0);
    fits && matches!(access(offset, true), Access::Accelerated | Access::Trap)
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write is complete.
    Done,
    /// The write is complete, and may have made a pending interrupt deliverable ([`Avic::pending`]).
    Evaluate,
    /// The guest sends an IPI with this ICR: the high half in bits 63:32, the low half in bits 31:0.
    Send(u64),
    /// The write exits. [`Access`] tells whether the instruction is complete.
    Exit(Unaccelerated),
}

impl<M: Memory> Avic<'_, M> {
    /// Reads the register at `offset` for the guest.
    ///
    /// # Errors
    /// Returns the exit if software must emulate the read.
    #[inline]
    pub fn read(&self, offset: u32) -> Result<u32, Unaccelerated> {
        match access(offset, false) {
            Access::Direct | Access::Accelerated => Ok(self.get(offset)),
            Access::Trap | Access::Fault => Err(Unaccelerated::new(offset, false, 0)),
        }
    }

    /// Writes `value` to the register at `offset` for the guest.
    #[inline]
    pub fn write(&self, offset: u32, value: u32) -> WriteOutcome {
        match access(offset, true) {
            Access::Direct => {
                self.set(offset, value);
                WriteOutcome::Done
            }
            Access::Fault => WriteOutcome::Exit(Unaccelerated::new(offset, true, 0)),
            Access::Trap => {
                self.set(offset, value);
                WriteOutcome::Exit(Unaccelerated::new(offset, true, 0))
            }
            Access::Accelerated => self.accelerated(offset, value),
        }
    }

    fn accelerated(&self, offset: u32, value: u32) -> WriteOutcome {
        match offset {
            reg::TPR => {
                self.set(reg::TPR, value & 0xff);
                self.update_ppr();
                WriteOutcome::Evaluate
            }
            reg::EOI => self.end_of_interrupt(),
            _ => {
                self.set(reg::ICR_LOW, value);
                WriteOutcome::Send(u64::from(self.get(reg::ICR_HIGH)) << 32 | u64::from(value))
            }
        }
    }

    /// Reads the register at `offset` by RDMSR for the guest, or returns `None` if hardware leaves the read to
    /// software.
    pub fn read_msr(&self, offset: u32) -> Option<u64> {
        by_msr(offset, self.read(offset).ok(), || self.get(reg::ICR_HIGH))
    }

    /// Writes the 64-bit ICR of x2APIC mode for the guest. Returns the ICR, to be sent.
    pub fn write_icr(&self, value: u64) -> u64 {
        self.set(reg::ICR_HIGH, (value >> 32) as u32);
        self.set(reg::ICR_LOW, value as u32);
        value
    }
}

/// Returns the RDMSR result for the register at `offset` with the low half `low`. Of x2APIC's registers only ICR has a
/// high half.
pub(crate) fn by_msr(offset: u32, low: Option<u32>, icr_high: impl FnOnce() -> u32) -> Option<u64> {
    let high = if offset == reg::ICR_LOW { icr_high() } else { 0 };
    Some(u64::from(high) << 32 | u64::from(low?))
}
