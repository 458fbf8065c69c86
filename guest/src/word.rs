//! The word of each CPU's steal-time record in which the kernel says what the CPU is in the midst of, for a host that
//! reads it (docs/spec/guest-host-interface.md, "Guest word").
//!
//! Each change is a store to a line of this CPU. The host reads it on the same pCPU, after an exit. So the stores take
//! no time here.

use holdfast_abi::StealTime;
use holdfast_locks::CpuId;

use crate::local::Local32;

/// What one CPU says. Interrupt handlers nest, and sections need not end in the order in which they began, so each part
/// is counted.
#[derive(Debug, Default)]
pub(crate) struct Says {
    /// Spinlocks held.
    sections: Local32,
    /// Spinlocks waited for.
    queues: Local32,
    /// The CPU whose answer to an IPI it waits for, plus 1.
    target: Local32,
}

impl Says {
    /// It takes a spinlock, or waits for it.
    pub(crate) fn waits(&self) {
        self.queues.add(1);
    }

    /// It has taken the spinlock.
    pub(crate) fn takes(&self) {
        self.queues.sub(1);
        self.sections.add(1);
    }

    /// It has released a spinlock.
    pub(crate) fn releases(&self) {
        self.sections.sub(1);
    }

    /// It waits for `target` to answer an IPI, or no longer.
    pub(crate) fn waits_for(&self, target: Option<CpuId>) {
        self.target.set(target.map_or(0, |target| target.0 + 1));
    }

    /// Returns whether others may wait for a spinlock of this CPU.
    pub(crate) fn is_busy(&self) -> bool {
        self.sections.is_set() || self.queues.is_set()
    }

    /// Returns the word.
    pub(crate) fn word(&self) -> u32 {
        let bit = |count: &Local32, bit| if count.is_set() { bit } else { 0 };
        let waits = match self.target.get().checked_sub(1) {
            Some(target) => StealTime::WAITS_FOR_IPI | target << StealTime::TARGET_SHIFT,
            None => 0,
        };
        bit(&self.sections, StealTime::IN_SECTION) | bit(&self.queues, StealTime::IN_QUEUE) | waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_lasts_until_its_own_end() {
        let says = Says::default();
        says.waits();
        assert_eq!(says.word(), StealTime::IN_QUEUE);
        says.takes();
        says.waits();
        assert_eq!(says.word(), StealTime::IN_SECTION | StealTime::IN_QUEUE);
        says.takes();
        says.releases();
        assert_eq!(says.word(), StealTime::IN_SECTION, "one of two is held");
        assert!(says.is_busy());
        says.waits_for(Some(CpuId(3)));
        assert_eq!(says.word() >> StealTime::TARGET_SHIFT, 3);
        assert_eq!(says.word() & 7, StealTime::IN_SECTION | StealTime::WAITS_FOR_IPI);
        says.waits_for(None);
        says.releases();
        assert_eq!(says.word(), 0);
        assert!(!says.is_busy());
        says.waits_for(Some(CpuId(3)));
        assert!(!says.is_busy(), "who waits for an IPI holds nobody up");
    }
}
