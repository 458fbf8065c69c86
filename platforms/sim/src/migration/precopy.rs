//! The copy of the guests' memory before a live migration stops them (pre-copy).
//!
//! Round 1 sends every page that the guests have ever touched, each following round those that were written during the
//! last one. When what is left can be sent within the downtime that is allowed, or after a number of rounds, the guests
//! stop, and the rest is sent. A page that was never touched costs nothing: it is sent as a flag. The guests of a host
//! share one link. The VMM's own CPU time for sending is not simulated, and neither is the state of devices, which is
//! small.

use holdfast_machine::Picos;

use crate::memory::dirty::DirtyLog;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// How memory is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precopy {
    /// Rate of the link, in bytes per second. At least 1.
    pub bytes_per_second: u64,
    /// Number of rounds after which the guests are stopped in any case. `None`: there is no limit.
    pub rounds_max: Option<u32>,
    /// Whether the hardware logs written pages.
    pub log: DirtyLog,
}

/// A copy under way.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    how: Precopy,
    /// Longest time for which the guests may be stopped.
    downtime_ns: u64,
    /// Rounds that have begun.
    rounds: u32,
}

/// What copies of memory took, of all migrations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// Rounds while the guests ran.
    pub rounds: u64,
    /// Pages that were sent, while the guests ran or were stopped.
    pub pages: u64,
    /// Nanoseconds for which the guests were stopped.
    pub downtime_ns: u64,
}

impl Copied {
    /// A round begins that sends `pages`.
    pub fn begin_round(&mut self, pages: u64) {
        self.rounds += 1;
        self.pages += pages;
    }

    /// The guests stop for `rest`, in which `pages` are sent.
    pub fn stop(&mut self, pages: u64, rest: Picos) {
        self.pages += pages;
        self.downtime_ns += rest.0 / 1_000;
    }

    /// The counters by name.
    pub fn counters(self) -> [(&'static str, u64); 3] {
        [
            ("migration_rounds", self.rounds),
            ("migration_pages", self.pages),
            ("migration_downtime_ns", self.downtime_ns),
        ]
    }
}

impl Precopy {
    /// The time for which `pages` are on the link.
    fn time(&self, pages: u64) -> Picos {
        let ns = u128::from(pages * PAGE_BYTES) * 1_000_000_000 / u128::from(self.bytes_per_second);
        Picos::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX / 1_000).max(1))
    }
}

/// What follows a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The guests run for this time, while the next round sends what they have written.
    Round(Picos),
    /// The guests stop for this time, in which the rest is sent.
    Stop(Picos),
}

impl Copying {
    /// The first round of a copy that may stop the guests for `downtime_ns`, and its time. It sends `pages`.
    pub fn begin(how: Precopy, downtime_ns: u64, pages: u64) -> (Copying, Picos) {
        let copying = Copying {
            how,
            downtime_ns,
            rounds: 1,
        };
        (copying, how.time(pages))
    }

    /// A round is over, during which `pages` were written.
    pub fn next(&mut self, pages: u64) -> Then {
        let rest = self.how.time(pages);
        let is_last = self.how.rounds_max.is_some_and(|most| self.rounds >= most);
        if is_last || rest <= Picos::from_nanos(self.downtime_ns) {
            return Then::Stop(rest);
        }
        self.rounds += 1;
        Then::Round(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Precopy = Precopy {
        bytes_per_second: 4096 * 1000,
        rounds_max: None,
        log: DirtyLog::WriteProtection,
    };

    #[test]
    fn rounds_go_on_until_the_rest_fits_the_downtime() {
        let ms = |ms: u64| Picos::from_nanos(ms * 1_000_000);
        let (mut copying, first) = Copying::begin(COPY, 10_000_000, 500);
        assert_eq!(first, ms(500));
        assert_eq!(copying.next(100), Then::Round(ms(100)));
        assert_eq!(copying.next(11), Then::Round(ms(11)));
        assert_eq!(copying.next(10), Then::Stop(ms(10)));
    }

    #[test]
    fn a_copy_that_does_not_converge_stops_after_its_rounds() {
        let limited = Precopy {
            rounds_max: Some(3),
            ..COPY
        };
        let (mut copying, _) = Copying::begin(limited, 0, 500);
        assert!(matches!(copying.next(500), Then::Round(_)));
        assert!(matches!(copying.next(500), Then::Round(_)));
        assert!(matches!(copying.next(500), Then::Stop(_)));
    }
}
