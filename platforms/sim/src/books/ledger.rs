//! The ledger of one vCPU: all of its time, by cause.
//!
//! **Exact**: the causes' totals sum to the time since power-on, to the picosecond. Time is only ever entered by moving
//! the cursor forward, so nothing is counted twice and nothing is left out.

use holdfast_machine::{Picos, Time};

use crate::books::cause::Cause;

/// Most stretches that a flow can owe.
const STRETCHES: usize = 8;

/// Guest time of one kind. The kind is that of when it was announced: by the time it has been lived through, the flow is
/// ahead, and may spend its time otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What it is spent on.
    pub cause: Cause,
    /// In user mode.
    pub user: bool,
    /// How long it is.
    pub span: Picos,
}

/// Stretches of guest time that a flow has announced and not yet lived through, in order.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    stretches: [Stretch; STRETCHES],
    first: usize,
    count: usize,
}

impl Owed {
    /// Nothing.
    pub const NOTHING: Owed = Owed {
        stretches: [Stretch {
            cause: Cause::Useful,
            user: false,
            span: Picos::ZERO,
        }; STRETCHES],
        first: 0,
        count: 0,
    };

    /// Adds a stretch at the end; false if there is no room.
    #[inline]
    #[must_use]
    pub fn push(&mut self, stretch: Stretch) -> bool {
        let Stretch { cause, user, span } = stretch;
        if span == Picos::ZERO {
            return true;
        }
        let last = self.stretches[..self.count].last_mut();
        if let Some(last) = last.filter(|last| last.cause == cause && last.user == user) {
            last.span += span;
        } else if self.count < STRETCHES {
            self.stretches[self.count] = stretch;
            self.count += 1;
        } else {
            return false;
        }
        true
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        (self.first, self.count) = (0, 0);
    }

    /// Takes the first stretch, or as much of it as fits into `span`.
    #[inline]
    pub fn live(&mut self, span: Picos) -> Stretch {
        let first = match self.stretches.get_mut(self.first) {
            Some(first) if self.first < self.count => first,
            _ => panic!("a flow lived longer than it announced: {span:?}"),
        };
        let owed = *first;
        if owed.span > span {
            first.span = owed.span - span;
            let Stretch { cause, user, .. } = owed;
            return Stretch { cause, user, span };
        }
        self.first += 1;
        if self.first == self.count {
            self.clear();
        }
        owed
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

    fn stretch(cause: Cause, user: bool, span: u64) -> Stretch {
        let span = Picos(span);
        Stretch { cause, user, span }
    }

    #[test]
    fn stretches_are_lived_in_order_and_in_parts() {
        let mut owed = Owed::NOTHING;
        assert!(owed.push(stretch(Cause::Useful, false, 10)));
        assert!(owed.push(stretch(Cause::Useful, false, 5)));
        assert!(owed.push(stretch(Cause::CacheTransfer, false, 7)));
        assert_eq!(owed.live(Picos(12)), stretch(Cause::Useful, false, 12));
        assert_eq!(owed.live(Picos(10)), stretch(Cause::Useful, false, 3));
        assert_eq!(owed.live(Picos(7)), stretch(Cause::CacheTransfer, false, 7));
    }

    #[test]
    fn user_time_stays_user_time_however_late_it_is_lived() {
        let mut owed = Owed::NOTHING;
        for (user, span) in [(false, 10), (true, 5), (true, 1), (false, 7)] {
            assert!(owed.push(stretch(Cause::Useful, user, span)));
        }
        assert_eq!(owed.live(Picos(100)), stretch(Cause::Useful, false, 10));
        assert_eq!(owed.live(Picos(4)), stretch(Cause::Useful, true, 4));
        assert_eq!(owed.live(Picos(100)), stretch(Cause::Useful, true, 2));
        assert_eq!(owed.live(Picos(100)), stretch(Cause::Useful, false, 7));
    }

    #[test]
    fn a_full_list_says_so() {
        let mut owed = Owed::NOTHING;
        for number in 0..STRETCHES {
            let cause = [Cause::Useful, Cause::Idle][number % 2];
            assert!(owed.push(stretch(cause, false, 1)));
        }
        assert!(!owed.push(stretch(Cause::Useful, false, 1)));
        assert!(!owed.push(stretch(Cause::Idle, true, 1)));
        let last = stretch(Cause::Idle, false, 1);
        assert!(owed.push(last), "the last stretch can still grow");
    }

    #[test]
    #[should_panic(expected = "lived longer")]
    fn time_out_of_nowhere_is_caught() {
        let mut owed = Owed::NOTHING;
        assert!(owed.push(stretch(Cause::Useful, false, 1)));
        owed.live(Picos(2));
        owed.live(Picos(1));
    }
}
