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
    /// Whether vCPUs are throttled until the copy converges.
    pub auto_converge: bool,
}

/// How QEMU throttles vCPUs until a copy converges (`migration_trigger_throttle`, `mig_throttle_guest_down`, with the
/// defaults of its parameters): about once in a second it looks whether the guests have written more than half of what
/// was sent. When they have for the second time, the throttle begins with 20 % or grows by 10 %.
#[derive(Clone, Copy, Debug, Default)]
struct Convergence {
    /// Share of the time for which vCPUs sleep, in percent.
    throttle: u32,
    /// Looks that found too much written, since the throttle grew.
    high: u32,
    /// Time since the last look.
    passed: Picos,
    /// Pages written and pages sent since then.
    written: u64,
    sent: u64,
}

impl Convergence {
    /// Least time between two looks.
    const PERIOD: Picos = Picos::from_nanos(1_000_000_000);

    /// A round of `span` is over that sent `sent` pages, while `written` pages were written.
    fn round_ends(&mut self, span: Picos, sent: u64, written: u64) {
        self.passed += span;
        self.sent += sent;
        self.written += written;
        if self.passed <= Convergence::PERIOD {
            return;
        }
        self.high += u32::from(self.written * 2 > self.sent);
        if self.high >= 2 {
            self.high = 0;
            self.throttle = if self.throttle == 0 {
                20
            } else {
                (self.throttle + 10).min(99)
            };
        }
        (self.passed, self.written, self.sent) = (Picos::ZERO, 0, 0);
    }
}

/// What live migrations copy of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Pages that the first round sends. `None`: those that were ever touched.
    pub pages: Option<u64>,
    /// Pages per second that are written and were not written before in a round. `None`: those that the workload
    /// writes.
    pub dirty_pages_per_second: Option<u64>,
}

impl Migrated {
    /// The pages that the first round sends, of which `touched` were touched.
    pub fn first_round(&self, touched: u64) -> u64 {
        self.pages.map_or(touched, |pages| pages.max(touched))
    }

    /// The pages that are left after a round of `span_ns` nanoseconds, in which the workload wrote `written` of the
    /// `touched` ones.
    pub fn next_round(&self, touched: u64, written: u64, span_ns: u64) -> u64 {
        let Some(rate) = self.dirty_pages_per_second else {
            return written;
        };
        let pages = u128::from(rate) * u128::from(span_ns) / 1_000_000_000;
        let all = self.first_round(touched);
        u64::try_from(pages).unwrap_or(u64::MAX).min(all).max(written)
    }
}

/// A copy under way.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    how: Precopy,
    /// Longest time for which the guests may be stopped.
    downtime_ns: u64,
    /// Rounds that have begun.
    rounds: u32,
    /// Length of the present round.
    span: Picos,
    /// Pages that it sends.
    sends: u64,
    convergence: Convergence,
}

/// What copies of memory took, of all migrations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// Copies that began.
    pub copies: u64,
    /// Rounds while the guests ran.
    pub rounds: u64,
    /// Pages that were sent, while the guests ran or were stopped.
    pub pages: u64,
    /// Nanoseconds for which the guests were stopped.
    pub downtime_ns: u64,
    /// The largest throttle, in percent.
    pub throttle_max: u32,
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
    pub fn counters(self) -> [(&'static str, u64); 5] {
        [
            ("migration_copies", self.copies),
            ("migration_rounds", self.rounds),
            ("migration_pages", self.pages),
            ("migration_downtime_ns", self.downtime_ns),
            ("migration_throttle_percent_max", u64::from(self.throttle_max)),
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
            span: how.time(pages),
            sends: pages,
            convergence: Convergence::default(),
        };
        (copying, copying.span)
    }

    /// The length of the present round.
    pub fn span(&self) -> Picos {
        self.span
    }

    /// The share of the time for which vCPUs sleep, in percent.
    pub fn throttle(&self) -> u32 {
        self.convergence.throttle
    }

    /// A round is over, during which `pages` were written.
    pub fn next(&mut self, pages: u64) -> Then {
        if self.how.auto_converge {
            self.convergence.round_ends(self.span, self.sends, pages);
        }
        let rest = self.how.time(pages);
        let is_last = self.how.rounds_max.is_some_and(|most| self.rounds >= most);
        if is_last || rest <= Picos::from_nanos(self.downtime_ns) {
            return Then::Stop(rest);
        }
        self.rounds += 1;
        self.span = rest;
        self.sends = pages;
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
        auto_converge: false,
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
    fn the_throttle_grows_with_every_second_look_at_too_much_writing() {
        let mut convergence = Convergence::default();
        let second = Picos::from_nanos(1_100_000_000);
        let throttles = [600, 400, 600, 600, 600, 600, 600].map(|written| {
            convergence.round_ends(second, 1_000, written);
            convergence.throttle
        });
        assert_eq!(throttles, [0, 0, 20, 20, 30, 30, 40]);
        // Short rounds are looked at together.
        convergence.round_ends(Picos::from_nanos(1_000), 1, 1);
        assert_eq!(convergence.passed, Picos::from_nanos(1_000));
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
