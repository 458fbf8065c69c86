//! Detection of convoys.
//!
//! In a convoy the next vCPU in line for a lock has lost its pCPU, and before it is back the vCPU after it has lost
//! its own. A convoy feeds on itself, and from outside it is visible only as slowness. Here it is detected in windows
//! of virtual time: a window belongs to a convoy if the guest's vCPUs spend longer spinning behind vCPUs that are not
//! running than on their own work.

use holdfast_machine::{Picos, Time};

/// Length of a window.
const WINDOW: Picos = Picos::from_nanos(50_000_000);

/// Time in which a guest's vCPUs spent longer spinning behind vCPUs that were not running than on their own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convoy {
    /// Begin of the first convoy, in nanoseconds since power-on.
    pub since_ns: u64,
    /// Length of all convoys together, in nanoseconds.
    pub total_ns: u64,
}

/// Detects the convoys of a guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvoyWatch {
    /// End of the present window.
    ends: Time,
    worked: u64,
    spun: u64,
    since: Option<Time>,
    total: u64,
}

impl ConvoyWatch {
    /// A vCPU worked for `span` up to `now`.
    #[inline]
    pub fn worked(&mut self, now: Time, span: Picos) {
        self.advance(now);
        self.worked += span.0;
    }

    /// A vCPU spun for `span` picoseconds up to `now` behind a vCPU that was not running.
    pub fn spun(&mut self, now: Time, span: u64) {
        self.advance(now);
        self.spun += span;
    }

    /// The convoys, if there was one.
    pub fn found(&self) -> Option<Convoy> {
        let since_ns = self.since?.nanos();
        let total_ns = self.total / 1000;
        Some(Convoy { since_ns, total_ns })
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        if now >= self.ends {
            self.close(now);
        }
    }

    #[cold]
    fn close(&mut self, now: Time) {
        if self.spun > self.worked {
            self.since.get_or_insert(Time(self.ends.0 - WINDOW.0));
            self.total += WINDOW.0;
        }
        self.ends = Time(now.0 - now.0 % WINDOW.0) + WINDOW;
        (self.worked, self.spun) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convoy_is_a_window_with_more_spinning_than_work() {
        let mut watch = ConvoyWatch::default();
        watch.worked(Time::from_nanos(10_000_000), Picos(100));
        watch.spun(Time::from_nanos(20_000_000), 99);
        watch.spun(Time::from_nanos(60_000_000), 5);
        assert_eq!(watch.found(), None);
        watch.worked(Time::from_nanos(160_000_000), Picos(1));
        let convoy = Convoy {
            since_ns: 50_000_000,
            total_ns: 50_000_000,
        };
        assert_eq!(watch.found(), Some(convoy));
    }
}
