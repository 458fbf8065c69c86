//! Skipped spin loops: the times of a spin's loads, computed without executing them.
//!
//! A spin repeats load, compare, PAUSE. Between two writes to its line every load hits and sees the same value, so the
//! times of its loads form an arithmetic sequence. A waiter parks with this sequence. A writer of the line computes the
//! first load that sees its write.
//!
//! **Exactness**: a spin that is executed load by load has its loads at the same times and leaves the same state.

use crate::time::{Picos, Time};

/// The future loads of a parked spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Time of the next load.
    pub next: Time,
    /// Time from one load to the next: a load that hits, and a PAUSE.
    pub period: Picos,
    /// Number of future loads, at least 1; `u64::MAX` for no limit. At the last one the waiter gives up or exits.
    pub loads: u64,
}

impl Spin {
    /// Returns the time of the load that follows `count` others.
    #[inline]
    pub fn load_time(&self, count: u64) -> Time {
        self.next + self.period.times(count)
    }

    /// Returns the number of loads before `time`, or at or before it if `inclusive`. The last load is never counted.
    #[inline]
    pub fn loads_before(&self, time: Time, inclusive: bool) -> u64 {
        let Some(span) = time.0.checked_sub(self.next.0) else {
            return 0;
        };
        let before = span.div_ceil(self.period.0.max(1));
        let exact = span.is_multiple_of(self.period.0.max(1));
        (before + u64::from(inclusive && exact)).min(self.loads - 1)
    }

    /// Returns the time of the last load, or [`Time::NEVER`] if there is no limit.
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
        /// Counting loads by division gives the same number as counting them one by one.
        #[test]
        fn loads_before_counts_loads(next in 0u64..100, period in 1u64..20, loads in 1u64..30, at in 0u64..300, inclusive: bool) {
            let spin = Spin { next: Time(next), period: Picos(period), loads };
            let counted = (0..loads - 1)
                .take_while(|&k| spin.load_time(k) < Time(at) || inclusive && spin.load_time(k) == Time(at))
                .count() as u64;
            prop_assert_eq!(spin.loads_before(Time(at), inclusive), counted);
        }
    }
    #[test]
    fn the_last_load_is_one_period_before_the_one_that_never_comes() {
        let spin = |loads| Spin {
            next: Time(10),
            period: Picos(3),
            loads,
        };
        assert_eq!((spin(1).last(), spin(5).last()), (Time(10), Time(22)));
        assert_eq!(spin(u64::MAX).last(), Time::NEVER);
    }
}
