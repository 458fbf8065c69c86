//! Pause-loop detection in hardware: what a PAUSE does to a vCPU's detector, and which of many PAUSEs exits.
//!
//! - **Forgotten at entry**: an exit and the entry after it clear what was counted ([`PauseDetector::enter`]), whatever the
//!   exit was for.
//! - **Exactness**: skipping PAUSEs leaves what executing them leaves, and exits where executing them exits.

use crate::time::{Picos, Time};

/// What detects pause loops in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseHardware {
    /// Intel's pause-loop exiting: times the loop, at CPL 0 only.
    Ple,
    /// AMD's pause filter: counts PAUSEs, at any CPL.
    Filter,
}

/// How a detector is set, as the hypervisor's control fields set it (docs/spec/host.md, "Pause detection").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseLimit {
    /// No PAUSE exits.
    #[default]
    Off,
    /// Intel (VMCS 0x4020 and 0x4022): PAUSEs no more than `gap` apart make a loop, and one that comes more than `window`
    /// after the loop's first exits.
    Ple {
        /// Longest time between two PAUSEs of one loop.
        gap: Picos,
        /// How long a loop may last before it exits.
        window: Picos,
    },
    /// AMD (VMCB 0x3e and 0x3c): an entry loads a counter, each PAUSE takes one from it, and the one that finds it at zero
    /// exits; a PAUSE more than `threshold` after the last loads it anew instead.
    Filter {
        /// PAUSEs that pass.
        count: u64,
        /// Longest time between two PAUSEs of one loop; zero: all count, whenever they come.
        threshold: Picos,
    },
}

/// The pause-loop detector of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseDetector {
    limit: PauseLimit,
    /// Intel: the first PAUSE of the present loop. AMD: any value says that there was a PAUSE since the entry.
    first: Option<Time>,
    last: Time,
    /// AMD: PAUSEs that still pass.
    left: u64,
}

impl PauseDetector {
    /// Sets the limit; it is in force from the next entry on.
    pub fn set(&mut self, limit: PauseLimit) {
        self.limit = limit;
    }

    /// Forgets everything, as each VM entry does.
    pub fn enter(&mut self) {
        self.first = None;
        self.last = Time(0);
        self.left = match self.limit {
            PauseLimit::Filter { count, .. } => count,
            PauseLimit::Off | PauseLimit::Ple { .. } => 0,
        };
    }

    /// Whether a PAUSE in the kernel, or in user mode, does anything to it.
    fn ignores(&self, in_kernel: bool) -> bool {
        match self.limit {
            PauseLimit::Off => true,
            PauseLimit::Ple { .. } => !in_kernel,
            PauseLimit::Filter { .. } => false,
        }
    }

    /// A PAUSE at `time`: returns whether it exits.
    #[inline]
    pub fn pause(&mut self, in_kernel: bool, time: Time) -> bool {
        if self.ignores(in_kernel) {
            return false;
        }
        let exits = self.pauses_before_exit(in_kernel, time, Picos::ZERO) == 0;
        self.count(time);
        exits
    }

    /// What a PAUSE at `time` leaves behind.
    fn count(&mut self, time: Time) {
        match self.limit {
            PauseLimit::Off => return,
            PauseLimit::Ple { gap, .. } => self.first = Some(self.loop_start(gap, time)),
            PauseLimit::Filter { count, threshold } => {
                self.left = if self.reloads(threshold, time) {
                    count
                } else {
                    self.left.saturating_sub(1)
                };
                self.first = Some(time);
            }
        }
        self.last = time;
    }

    /// Intel: where the loop that a PAUSE at `time` belongs to began.
    fn loop_start(&self, gap: Picos, time: Time) -> Time {
        match self.first {
            Some(first) if time.since(self.last) <= gap => first,
            _ => time,
        }
    }

    /// AMD: whether a PAUSE at `time` loads the counter anew. The first one after an entry, whose predecessor lies before
    /// the exit, does so too (uncertain: the manual does not say).
    fn reloads(&self, threshold: Picos, time: Time) -> bool {
        threshold != Picos::ZERO && (self.first.is_none() || time.since(self.last) > threshold)
    }

    /// How many of the PAUSEs at `next`, `next + period` … pass before one exits; `u64::MAX`: all do.
    pub fn pauses_before_exit(&self, in_kernel: bool, next: Time, period: Picos) -> u64 {
        if self.ignores(in_kernel) {
            return u64::MAX;
        }
        match self.limit {
            PauseLimit::Off => u64::MAX,
            PauseLimit::Ple { gap, window } => {
                let first = self.loop_start(gap, next);
                if period > gap {
                    return if next.since(first) > window { 0 } else { u64::MAX };
                }
                match (first + window).0.checked_sub(next.0) {
                    None => 0,
                    Some(span) => span / period.0.max(1) + 1,
                }
            }
            PauseLimit::Filter { count, threshold } => {
                let reloads = self.reloads(threshold, next);
                if !reloads && self.left == 0 {
                    0
                } else if threshold != Picos::ZERO && period > threshold {
                    u64::MAX
                } else if reloads {
                    count + 1
                } else {
                    self.left
                }
            }
        }
    }

    /// Accounts for `count` PAUSEs that were skipped, at `next`, `next + period` … None of them exits.
    pub fn skip(&mut self, in_kernel: bool, next: Time, period: Picos, count: u64) {
        if count == 0 || self.ignores(in_kernel) {
            return;
        }
        debug_assert!(
            count <= self.pauses_before_exit(in_kernel, next, period),
            "a skipped PAUSE does not exit"
        );
        self.count(next);
        if count == 1 {
            return;
        }
        let last = next + period.times(count - 1);
        match self.limit {
            PauseLimit::Off => {}
            PauseLimit::Ple { gap, .. } => {
                if period > gap {
                    self.first = Some(last);
                }
            }
            PauseLimit::Filter {
                count: pauses,
                threshold,
            } => {
                self.left = if threshold != Picos::ZERO && period > threshold {
                    pauses
                } else {
                    self.left - (count - 1)
                };
                self.first = Some(last);
            }
        }
        self.last = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits() -> impl Strategy<Value = PauseLimit> {
        prop_oneof![
            (1u64..40, 0u64..400).prop_map(|(gap, window)| PauseLimit::Ple {
                gap: Picos(gap),
                window: Picos(window)
            }),
            (0u64..40, 0u64..40).prop_map(|(count, threshold)| PauseLimit::Filter {
                count,
                threshold: Picos(threshold)
            }),
            Just(PauseLimit::Off),
        ]
    }

    fn entered(limit: PauseLimit) -> PauseDetector {
        let mut detector = PauseDetector::default();
        detector.set(limit);
        detector.enter();
        detector
    }

    proptest! {
        /// Skipping PAUSEs leaves what executing them leaves, and exits where executing them exits.
        #[test]
        fn skipped_pauses_are_executed_pauses(
            limit in limits(), in_kernel: bool, warm in proptest::collection::vec(1u64..60, 0..9),
            lead in 1u64..60, period in 1u64..50, asked in 0u64..60,
        ) {
            let mut detector = entered(limit);
            let mut now = Time(0);
            for step in warm {
                now += Picos(step);
                if detector.pause(in_kernel, now) {
                    detector.enter();
                }
            }
            let next = now + Picos(lead);
            let mut executed = detector;
            let mut passed = 0;
            while passed < 1000 && !executed.pause(in_kernel, next + Picos(period).times(passed)) {
                passed += 1;
            }
            let passes = detector.pauses_before_exit(in_kernel, next, Picos(period));
            prop_assert_eq!(passes.min(1000), passed);
            let count = asked.min(passes);
            let mut skipped = detector;
            skipped.skip(in_kernel, next, Picos(period), count);
            let mut executed = detector;
            for k in 0..count {
                executed.pause(in_kernel, next + Picos(period).times(k));
            }
            prop_assert_eq!(skipped, executed);
        }
    }

    const PLE: PauseLimit = PauseLimit::Ple {
        gap: Picos(10),
        window: Picos(100),
    };

    fn filter(count: u64, threshold: u64) -> PauseLimit {
        PauseLimit::Filter {
            count,
            threshold: Picos(threshold),
        }
    }

    /// Times of the exits of a loop that pauses every `period` for `end`, entered again at each; `other` exits, for
    /// something else, come every so often.
    fn exits(limit: PauseLimit, period: u64, end: u64, other: u64, clears: bool) -> Vec<(u64, u64)> {
        let mut detector = entered(limit);
        let (mut entry, mut found) = (0, Vec::new());
        for time in (period..end).step_by(period as usize) {
            let exits = detector.pause(true, Time(time));
            if exits {
                found.push((entry, time));
            }
            if exits || time % other == 0 {
                if clears {
                    detector.enter();
                }
                entry = time;
            }
        }
        found
    }

    /// No PAUSE exits within the window of the entry before it.
    fn is_forgotten_at_entry(exits: &[(u64, u64)]) -> bool {
        exits.iter().all(|(entry, exit)| exit - entry > 100)
    }

    #[test]
    fn an_entry_forgets_the_loop_and_a_detector_that_does_not_is_seen() {
        // Other exits come too often for a window to fill.
        assert_eq!(exits(PLE, 5, 1_000, 50, true), []);
        assert!(is_forgotten_at_entry(&exits(PLE, 5, 1_000, 250, true)));
        assert_eq!(exits(filter(15, 10), 5, 1_000, 50, true), []);
        assert!(!is_forgotten_at_entry(&exits(PLE, 5, 1_000, 50, false)));
        assert!(!exits(filter(15, 10), 5, 1_000, 50, false).is_empty());
    }

    #[test]
    fn intel_looks_at_the_kernel_only_and_amd_at_all() {
        for (limit, user_exits) in [(PLE, false), (filter(7, 10), true), (filter(7, 0), true)] {
            let mut detector = entered(limit);
            assert_eq!(
                (1..100).any(|k| detector.pause(false, Time(k * 5))),
                user_exits,
                "{limit:?}"
            );
            let mut detector = entered(limit);
            assert!((1..100).any(|k| detector.pause(true, Time(k * 5))), "{limit:?}");
        }
    }

    #[test]
    fn pauses_far_apart_are_no_loop_unless_all_count() {
        let exits = |limit| {
            let mut detector = entered(limit);
            (1..1_000).any(|k| detector.pause(true, Time(k * 11)))
        };
        assert!(!exits(PLE));
        assert!(!exits(filter(7, 10)));
        assert!(exits(filter(7, 0)));
    }

    #[test]
    fn a_limit_is_in_force_from_the_next_entry_on() {
        let mut detector = entered(filter(2, 0));
        detector.set(filter(5, 0));
        assert!(
            [false, false, true]
                .into_iter()
                .enumerate()
                .all(|(k, exits)| { detector.pause(true, Time(k as u64)) == exits })
        );
        detector.enter();
        assert_eq!(detector.pauses_before_exit(true, Time(9), Picos(1)), 5);
    }
}
