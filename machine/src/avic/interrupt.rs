//! Virtual interrupts: the one that the guest takes next, and its end (docs/spec/interrupts.md, "AVIC IPIs").

use holdfast_abi::Memory;
use holdfast_abi::avic::Unaccelerated;
use holdfast_abi::lapic as reg;

use super::access::WriteOutcome;
use super::{Avic, bit_of};

impl<M: Memory> Avic<'_, M> {
    /// Returns the highest vector in the eight registers from `base`.
    fn highest(&self, base: u32) -> Option<u8> {
        (0..8u32).rev().find_map(|word| {
            let bits = self.get(base + word * 16);
            (bits != 0).then(|| (word * 32 + 31 - bits.leading_zeros()) as u8)
        })
    }

    /// Returns the processor priority.
    fn ppr(&self) -> u32 {
        let tpr = self.get(reg::TPR) & 0xff;
        let in_service = u32::from(self.highest(reg::ISR).unwrap_or(0)) & 0xf0;
        if tpr & 0xf0 >= in_service { tpr } else { in_service }
    }

    pub(super) fn update_ppr(&self) {
        self.set(reg::PPR, self.ppr());
    }

    /// Returns the vector that the guest takes as soon as it can be interrupted, if there is one.
    ///
    /// Hardware evaluates this at VMRUN, at a doorbell, and after EOI or a change of TPR or RFLAGS.IF. It ignores the
    /// LAPIC's software-enable bit (uncertain).
    pub fn pending(&self) -> Option<u8> {
        let vector = self.highest(reg::IRR)?;
        (u32::from(vector) & 0xf0 > self.ppr() & 0xf0).then_some(vector)
    }

    /// Delivers `vector`, which is [pending](Avic::pending), to the guest: moves it from IRR to ISR.
    pub fn take(&self, vector: u8) {
        let (irr, bit) = bit_of(self.page, reg::IRR, vector);
        self.memory.clear32(irr, bit);
        let (isr, bit) = bit_of(self.page, reg::ISR, vector);
        self.memory.set32(isr, bit);
        self.update_ppr();
    }

    /// Carries out the guest's write to EOI.
    pub(super) fn end_of_interrupt(&self) -> WriteOutcome {
        let Some(vector) = self.highest(reg::ISR) else {
            return WriteOutcome::Evaluate;
        };
        let (tmr, bit) = bit_of(self.page, reg::TMR, vector);
        if self.memory.load32(tmr).unwrap_or(0) & bit != 0 {
            return WriteOutcome::Exit(Unaccelerated::new(reg::EOI, true, vector));
        }
        let (isr, bit) = bit_of(self.page, reg::ISR, vector);
        self.memory.clear32(isr, bit);
        self.update_ppr();
        WriteOutcome::Evaluate
    }
}
