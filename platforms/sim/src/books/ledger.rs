//! The ledger of one vCPU: all of its time, by cause.
//!
//! **Exact**: the causes' totals sum to the time since power-on, to the picosecond. Time is entered only by moving the
//! cursor forward, so no time is counted twice and none is left out.

use holdfast_machine::{Picos, Time};

use crate::core::cause::Cause;

/// All time of a vCPU up to the cursor.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Ledger {
    cursor: Time,
    totals: [u64; Cause::ALL.len()],
}

impl Ledger {
    /// The time up to which all time is entered.
    #[inline]
    pub fn cursor(&self) -> Time {
        self.cursor
    }

    /// The time spent on `cause` up to the cursor.
    pub fn of(&self, cause: Cause) -> Picos {
        Picos(self.totals[cause as usize])
    }

    /// Enters the next `span` as spent on `cause`.
    #[inline]
    pub fn enter(&mut self, cause: Cause, span: Picos) {
        self.totals[cause as usize] += span.0;
        self.cursor += span;
    }

    /// Enters all time up to `now` as spent on `cause`.
    #[inline]
    pub fn enter_until(&mut self, cause: Cause, now: Time) {
        self.enter(cause, now.since(self.cursor));
    }

    /// Returns picoseconds by cause.
    ///
    /// # Panics
    /// If the totals do not sum to the time up to the cursor, which is a fault of the simulator.
    pub fn totals(&self) -> [u64; Cause::ALL.len()] {
        let sum: u64 = self.totals.iter().sum();
        assert_eq!(
            sum, self.cursor.0,
            "the causes' totals do not sum to the vcpu's time in ps"
        );
        self.totals
    }
}
