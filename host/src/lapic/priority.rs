//! IRR, ISR and priorities: what is pending, what is in service, what may be injected.

use holdfast_abi::lapic as reg;

use super::Lapic;

impl Lapic {
    /// Takes an edge-triggered interrupt into IRR. False if it is ignored, or was pending already.
    pub(crate) fn accept(&mut self, vector: u8) -> bool {
        if !self.is_enabled() {
            return false;
        }
        let (word, bit) = (irr_index(vector), 1 << (vector % 32));
        self.regs[tmr_index(vector)] &= !bit;
        let new = self.regs[word] & bit == 0;
        self.regs[word] |= bit;
        self.irr_pending = true;
        new
    }

    /// The highest vector in the eight registers from `base`.
    fn highest(&self, base: u32) -> Option<u8> {
        let first = (base / 16) as usize;
        (0..8usize).rev().find_map(|word| {
            let bits = self.regs[first + word];
            (bits != 0).then(|| (word as u32 * 32 + 31 - bits.leading_zeros()) as u8)
        })
    }

    /// Processor priority: the task's, or the class of what is in service if that is higher.
    pub(super) fn ppr(&self) -> u32 {
        let tpr = self.get(reg::TPR);
        let in_service = u32::from(self.highest(reg::ISR).unwrap_or(0));
        if tpr & 0xf0 >= in_service & 0xf0 {
            tpr
        } else {
            in_service & 0xf0
        }
    }

    /// The vector to be injected next, if any has a priority class above the processor's.
    pub(crate) fn deliverable(&mut self) -> Option<u8> {
        if !self.irr_pending || !self.is_enabled() {
            return None;
        }
        let Some(vector) = self.highest(reg::IRR) else {
            self.irr_pending = false;
            return None;
        };
        (u32::from(vector) & 0xf0 > self.ppr() & 0xf0).then_some(vector)
    }

    /// The guest takes `vector`, which is deliverable.
    pub(crate) fn take(&mut self, vector: u8) {
        let bit = 1 << (vector % 32);
        assert!(
            self.regs[irr_index(vector)] & bit != 0,
            "vector {vector} is taken without being requested"
        );
        self.regs[irr_index(vector)] &= !bit;
        self.regs[isr_index(vector)] |= bit;
    }

    /// Ends the interrupt in service, if there is one.
    pub(super) fn end_of_interrupt(&mut self) -> Option<u8> {
        let vector = self.highest(reg::ISR)?;
        self.regs[isr_index(vector)] &= !(1 << (vector % 32));
        Some(vector)
    }
}

fn irr_index(vector: u8) -> usize {
    reg::IRR as usize / 16 + vector as usize / 32
}

fn isr_index(vector: u8) -> usize {
    reg::ISR as usize / 16 + vector as usize / 32
}

fn tmr_index(vector: u8) -> usize {
    reg::TMR as usize / 16 + vector as usize / 32
}
