//! The ledger of one vCPU: all of its time, by cause.
//!
//! **Exact**: the causes' totals sum to the time since power-on, to the picosecond. Time is only ever entered by moving
//! the cursor forward, so nothing is counted twice and nothing is left out.

use holdfast_machine::{Picos, Time};

use crate::cause::Cause;

/// Most stretches that a flow can owe.
const STRETCHES: usize = 4;

/// Stretches of guest time that a flow has announced and not yet lived through, in order.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    stretches: [(Cause, Picos); STRETCHES],
    first: usize,
    count: usize,
}

impl Owed {
    /// Nothing.
    pub const NOTHING: Owed = Owed {
        stretches: [(Cause::Useful, Picos::ZERO); STRETCHES],
        first: 0,
        count: 0,
    };

    /// Adds a stretch at the end; false if there is no room.
    #[inline]
    #[must_use]
    pub fn push(&mut self, cause: Cause, span: Picos) -> bool {
        if span == Picos::ZERO {
            return true;
        }
        if self.count > 0 && self.stretches[self.count - 1].0 == cause {
            self.stretches[self.count - 1].1 += span;
        } else if self.count < STRETCHES {
            self.stretches[self.count] = (cause, span);
            self.count += 1;
        } else {
            return false;
        }
        true
    }

    /// Takes the first stretch, or as much of it as fits into `span`.
    #[inline]
    pub fn live(&mut self, span: Picos) -> (Cause, Picos) {
        assert!(
            self.first < self.count,
            "a flow lived longer than it announced: {span:?}"
        );
        let (cause, owed) = self.stretches[self.first];
        if owed > span {
            self.stretches[self.first].1 = owed - span;
            return (cause, span);
        }
        self.first += 1;
        if self.first == self.count {
            (self.first, self.count) = (0, 0);
        }
        (cause, owed)
    }
}

/// All time of a vCPU up to the cursor.
#[derive(Clone, Debug)]
pub struct Ledger {
    totals: [u64; Cause::ALL.len()],
    cursor: Time,
}

impl Ledger {
    /// Starts at power-on.
    pub fn new() -> Ledger {
        Ledger {
            totals: [0; Cause::ALL.len()],
            cursor: Time(0),
        }
    }

    /// Up to where time is entered.
    #[inline]
    pub fn cursor(&self) -> Time {
        self.cursor
    }

    /// The next `span` was spent on `cause`.
    #[inline]
    pub fn enter(&mut self, cause: Cause, span: Picos) {
        self.totals[cause as usize] += span.0;
        self.cursor += span;
    }

    /// All time up to `now` was spent on `cause`.
    #[inline]
    pub fn enter_until(&mut self, cause: Cause, now: Time) {
        self.enter(cause, now.since(self.cursor));
    }

    /// Picoseconds by cause.
    ///
    /// # Panics
    /// If the totals do not sum to the time up to the cursor: our fault.
    pub fn totals(&self) -> [u64; Cause::ALL.len()] {
        let sum: u64 = self.totals.iter().sum();
        assert_eq!(sum, self.cursor.0, "the parts of lost time must sum to the whole");
        self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_lived_in_order_and_in_parts() {
        let mut owed = Owed::NOTHING;
        assert!(owed.push(Cause::Useful, Picos(10)));
        assert!(owed.push(Cause::Useful, Picos(5)));
        assert!(owed.push(Cause::CacheTransfer, Picos(7)));
        assert_eq!(owed.live(Picos(12)), (Cause::Useful, Picos(12)));
        assert_eq!(owed.live(Picos(10)), (Cause::Useful, Picos(3)));
        assert_eq!(owed.live(Picos(7)), (Cause::CacheTransfer, Picos(7)));
    }

    #[test]
    fn a_full_list_says_so() {
        let mut owed = Owed::NOTHING;
        for cause in [Cause::Useful, Cause::Idle, Cause::Useful, Cause::Idle] {
            assert!(owed.push(cause, Picos(1)));
        }
        assert!(!owed.push(Cause::Useful, Picos(1)));
        assert!(owed.push(Cause::Idle, Picos(1)), "the last stretch can still grow");
    }

    #[test]
    #[should_panic(expected = "lived longer")]
    fn time_out_of_nowhere_is_caught() {
        let mut owed = Owed::NOTHING;
        assert!(owed.push(Cause::Useful, Picos(1)));
        owed.live(Picos(2));
        owed.live(Picos(1));
    }
}
