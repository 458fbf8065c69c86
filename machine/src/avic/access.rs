//! Which register accesses hardware does by itself (docs/spec/interrupts.md, "AVIC register access").

use holdfast_abi::Memory;
use holdfast_abi::avic::{Unaccelerated, is_trap};
use holdfast_abi::lapic as reg;

use super::Avic;

/// How an access ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Straight from or to the backing page.
    Direct,
    /// To the page, with the register's effect, all in hardware.
    Accelerated,
    /// The value is in the page and the instruction done; an exit lets software do the rest.
    Trap,
    /// Nothing is done: software emulates the instruction.
    Fault,
}

/// How an access to the register at `offset` ends. EOI is a trap if the interrupt in service is level-triggered.
///
/// That APR, the timer's current count and extended registers fault on reads, and APR and PPR on writes, is from memory.
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

/// Whether hardware takes `value` by WRMSR for the register at `offset`, in x2APIC mode. Other values fault, and other registers
/// are read-only: software is asked, and says so.
pub const fn accepts_wrmsr(offset: u32, value: u64) -> bool {
    let only_zero = matches!(offset, reg::EOI | reg::ESR);
    let fits = value <= u32::MAX as u64 && !(only_zero && value != 0);
    fits && matches!(access(offset, true), Access::Accelerated | Access::Trap)
}

/// What comes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Nothing more.
    Done,
    /// An interrupt may now be taken.
    Evaluate,
    /// An IPI goes out: the ICR, high half first.
    Send(u64),
    /// An exit; whether the instruction is done is a matter of the register.
    Exit(Unaccelerated),
}

impl<M: Memory> Avic<'_, M> {
    /// The guest reads the register at `offset`.
    ///
    /// # Errors
    /// The exit by which software is asked to.
    #[inline]
    pub fn read(&self, offset: u32) -> Result<u32, Unaccelerated> {
        match access(offset, false) {
            Access::Direct | Access::Accelerated => Ok(self.get(offset)),
            Access::Trap | Access::Fault => Err(Unaccelerated::new(offset, false, 0)),
        }
    }

    /// The guest writes `value` to the register at `offset`.
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

    /// The guest reads the register at `offset` by RDMSR; `None` if hardware leaves that to software.
    pub fn read_msr(&self, offset: u32) -> Option<u64> {
        by_msr(offset, self.read(offset).ok(), || self.get(reg::ICR_HIGH))
    }

    /// The guest writes the 64-bit ICR of x2APIC mode; returns it, to be sent.
    pub fn write_icr(&self, value: u64) -> u64 {
        self.set(reg::ICR_HIGH, (value >> 32) as u32);
        self.set(reg::ICR_LOW, value as u32);
        value
    }
}

/// What RDMSR gives for the register at `offset`, whose 32 bits are `low`: of x2APIC's registers only ICR has more.
pub(crate) fn by_msr(offset: u32, low: Option<u32>, icr_high: impl FnOnce() -> u32) -> Option<u64> {
    let high = if offset == reg::ICR_LOW { icr_high() } else { 0 };
    Some(u64::from(high) << 32 | u64::from(low?))
}
