//! Pause loops, skipped: where the loads of a spin would fall, without executing them.
//!
//! A spin is load, compare, PAUSE, again. Between two writes to its line every load hits and sees the same value, so the
//! loop's future is an arithmetic sequence. A waiter parks on it; whoever writes the line asks which load sees the write.
//!
//! **Exactness**: a spin that is executed load by load has its loads at the same times and leaves the same state.

use crate::profile::Ple;
use crate::time::{Picos, Time};

/// The loads that a parked spin has still ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// When the next load is due.
    pub next: Time,
    /// From one load to the next: a hit and a PAUSE.
    pub period: Picos,
    /// How many loads may still come; at the last one the waiter gives up or exits.
    pub loads: u64,
}

impl Spin {
    /// When the load after `count` others is due.
    #[inline]
    pub fn load_time(&self, count: u64) -> Time {
        self.next + self.period.times(count)
    }

    /// How many loads come before `time`; or, if `inclusive`, not after it.
    #[inline]
    pub fn loads_before(&self, time: Time, inclusive: bool) -> u64 {
        let Some(span) = time.0.checked_sub(self.next.0) else {
            return 0;
        };
        let before = span.div_ceil(self.period.0.max(1));
        let exact = span.is_multiple_of(self.period.0.max(1));
        (before + u64::from(inclusive && exact)).min(self.loads - 1)
    }

    /// When the last load is due, or never.
    #[inline]
    pub fn last(&self) -> Time {
        match self.loads {
            u64::MAX => Time::NEVER,
            loads => self.load_time(loads - 1),
        }
    }
}

/// What the pause-loop detector of a vCPU remembers (Intel's algorithm, `host.md` §3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseHistory {
    first: Option<Time>,
    last: Time,
}

impl PauseHistory {
    /// Forgets everything, as each VM entry does.
    pub fn reset(&mut self) {
        *self = PauseHistory::default();
    }

    /// A PAUSE at `time`: returns whether it exits.
    #[inline]
    pub fn pause(&mut self, ple: &Ple, time: Time) -> bool {
        let first = match self.first {
            Some(first) if time.since(self.last) <= ple.gap => first,
            _ => time,
        };
        self.first = Some(first);
        self.last = time;
        time.since(first) > ple.window
    }

    /// How many of the PAUSEs at `next`, `next + period` … pass before one exits; `u64::MAX`: all do.
    pub fn pauses_before_exit(&self, ple: &Ple, next: Time, period: Picos) -> u64 {
        let first = match self.first {
            Some(first) if next.since(self.last) <= ple.gap => first,
            _ => next,
        };
        if period > ple.gap {
            return if next.since(first) > ple.window { 0 } else { u64::MAX };
        }
        let end = first + ple.window;
        match end.0.checked_sub(next.0) {
            None => 0,
            Some(span) => span / period.0.max(1) + 1,
        }
    }

    /// Accounts for `count` PAUSEs that were skipped, at `next`, `next + period` …
    pub fn skip(&mut self, ple: &Ple, next: Time, period: Picos, count: u64) {
        if count == 0 {
            return;
        }
        let last = next + period.times(count - 1);
        let exits = self.pause(ple, next);
        debug_assert!(!exits, "a skipped PAUSE does not exit");
        if count > 1 {
            if period > ple.gap {
                self.first = Some(last);
            }
            self.last = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Counting loads by division is counting them one by one.
        #[test]
        fn loads_before_counts_loads(next in 0u64..100, period in 1u64..20, loads in 1u64..30, at in 0u64..300, inclusive: bool) {
            let spin = Spin { next: Time(next), period: Picos(period), loads };
            let counted = (0..loads - 1)
                .take_while(|&k| spin.load_time(k) < Time(at) || inclusive && spin.load_time(k) == Time(at))
                .count() as u64;
            prop_assert_eq!(spin.loads_before(Time(at), inclusive), counted);
        }

        /// Skipping PAUSEs leaves what executing them leaves, and exits where executing them exits.
        #[test]
        fn skipped_pauses_are_executed_pauses(
            gap in 1u64..40, window in 0u64..400, warm in proptest::collection::vec(1u64..60, 0..5),
            lead in 1u64..60, period in 1u64..50, asked in 0u64..30,
        ) {
            let ple = Ple { gap: Picos(gap), window: Picos(window) };
            let mut history = PauseHistory::default();
            let mut now = Time(0);
            for step in warm {
                now += Picos(step);
                if history.pause(&ple, now) {
                    history.reset();
                }
            }
            let next = now + Picos(lead);
            let mut executed = history;
            let mut passed = 0;
            while passed < 1000 && !executed.pause(&ple, next + Picos(period).times(passed)) {
                passed += 1;
            }
            let passes = history.pauses_before_exit(&ple, next, Picos(period));
            prop_assert_eq!(passes.min(1000), passed);
            let count = asked.min(passes);
            let mut skipped = history;
            skipped.skip(&ple, next, Picos(period), count);
            let mut executed = history;
            for k in 0..count {
                executed.pause(&ple, next + Picos(period).times(k));
            }
            prop_assert_eq!(skipped, executed);
        }
    }
}
