//! Pause loops, skipped: where the loads of a spin would fall, without executing them.
//!
//! A spin is load, compare, PAUSE, again. Between two writes to its line every load hits and sees the same value, so the
//! loop's future is an arithmetic sequence. A waiter parks on it; whoever writes the line asks which load sees the write.
//!
//! **Exactness**: a spin that is executed load by load has its loads at the same times and leaves the same state.

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
    }
}
