//! The ledger of one vCPU: all of its time, by cause.
//!
//! **Exact**: the causes' totals and the time after the guest's end sum to the time since power-on, to the picosecond.
//! Time is entered only by moving the cursor forward, so no time is counted twice and none is left out.

use holdfast_machine::{Picos, Time};

use crate::core::cause::Cause;

/// All time of a vCPU up to the cursor.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Ledger {
    cursor: Time,
    /// The end of its guest. What comes later has no cause.
    end: Time,
    totals: [u64; Cause::ALL.len()],
    /// Picoseconds after the guest's end.
    after: u64,
    slowed: [u64; SLOWED.len()],
}

/// Pairs of causes: time that is entered under the first one and partly belongs to the second one. A computation is
/// entered as a whole, and known to be slowed down when it is announced.
const SLOWED: [(Cause, Cause); 4] = [
    (Cause::Useful, Cause::SharedCore),
    (Cause::CriticalSection, Cause::SharedCore),
    (Cause::Useful, Cause::RemoteMemory),
    (Cause::HostOverhead, Cause::ColdCaches),
];

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            cursor: Time(0),
            end: Time::NEVER,
            totals: [0; Cause::ALL.len()],
            after: 0,
            slowed: [0; SLOWED.len()],
        }
    }
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
        let until = self.cursor + span;
        if until > self.end {
            return self.enter_beyond(cause, until);
        }
        self.totals[cause as usize] += span.0;
        self.cursor = until;
    }

    /// Enters all time up to `until`, which is after the guest's end, as spent on `cause` before that end.
    #[cold]
    fn enter_beyond(&mut self, cause: Cause, until: Time) {
        let own = self.end.max(self.cursor).since(self.cursor);
        self.totals[cause as usize] += own.0;
        self.after += until.since(self.cursor + own).0;
        self.cursor = until;
    }

    /// Of the time that is or will be entered as spent on `within`, `span` belongs to `cause`.
    pub fn slowed(&mut self, within: Cause, cause: Cause, span: Picos) {
        let pair = SLOWED.iter().position(|pair| *pair == (within, cause));
        if let Some(pair) = pair.filter(|_| self.end == Time::NEVER) {
            self.slowed[pair] += span.0;
        }
    }

    /// The guest is done at `end`: what comes later has no cause. Time that is entered already keeps its cause.
    pub fn end_at(&mut self, end: Time) {
        self.end = self.end.min(end);
    }

    /// Enters all time up to `now` as spent on `cause`.
    #[inline]
    pub fn enter_until(&mut self, cause: Cause, now: Time) {
        self.enter(cause, now.since(self.cursor));
    }

    /// Returns picoseconds by cause, from power-on to the guest's end.
    ///
    /// # Panics
    /// If the totals and the time after that do not sum to the time up to the cursor, which is a fault of the
    /// simulator.
    pub fn totals(&self) -> [u64; Cause::ALL.len()] {
        let sum: u64 = self.totals.iter().sum::<u64>() + self.after;
        assert_eq!(
            sum, self.cursor.0,
            "the causes' totals do not sum to the vcpu's time in ps"
        );
        let mut totals = self.totals;
        for ((within, cause), span) in SLOWED.into_iter().zip(self.slowed) {
            // What was announced and not done when the guest ended is not in its totals.
            let span = span.min(totals[within as usize]);
            totals[within as usize] -= span;
            totals[cause as usize] += span;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_after_the_end_has_no_cause() {
        let mut ledger = Ledger::default();
        ledger.enter(Cause::Useful, Picos(60));
        ledger.end_at(Time(100));
        // A stretch over the end counts up to it.
        ledger.enter(Cause::Runnable, Picos(50));
        ledger.enter_until(Cause::Idle, Time(500));
        assert_eq!(
            (ledger.of(Cause::Useful), ledger.of(Cause::Runnable)),
            (Picos(60), Picos(40))
        );
        assert_eq!((ledger.of(Cause::Idle), ledger.cursor()), (Picos::ZERO, Time(500)));
        assert_eq!(ledger.totals().iter().sum::<u64>(), 100);
    }

    #[test]
    fn slowed_work_has_a_cause_of_its_own() {
        let mut ledger = Ledger::default();
        ledger.enter(Cause::Useful, Picos(170));
        ledger.slowed(Cause::Useful, Cause::SharedCore, Picos(70));
        // The loop of an idle kernel loses nothing.
        ledger.slowed(Cause::Idle, Cause::SharedCore, Picos(5));
        // Announced, and not done before the end.
        ledger.slowed(Cause::CriticalSection, Cause::SharedCore, Picos(9));
        let totals = ledger.totals();
        assert_eq!(totals[Cause::Useful as usize], 100);
        assert_eq!(totals[Cause::SharedCore as usize], 70);
        assert_eq!(totals.iter().sum::<u64>(), 170);
    }
}
