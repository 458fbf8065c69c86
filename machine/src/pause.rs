//! Pause-loop detection in hardware: the effect of a PAUSE on a vCPU's detector, and which PAUSE of a loop exits.
//!
//! - **Forgotten at entry**: every VM entry resets the detector ([`PauseDetector::enter`]), whatever the exit before it
//!   was for.
//! - **Exactness**: skipping PAUSEs leaves the state that executing them leaves, and exits at the same PAUSE.
//!
//! Sources: Intel SDM volume 3, section "Controls for PAUSE-Loop Exiting"; AMD APM volume 2, section 15.14.4 "Pause
//! Intercept Filtering". See docs/spec/host.md, "Pause detection".

use crate::time::{Picos, Time};

/// The kind of pause-loop detector in a CPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseHardware {
    /// Intel's pause-loop exiting: limits the duration of a loop, at CPL 0 only.
    Ple,
    /// AMD's pause filter: limits the number of PAUSEs, at any CPL.
    Filter,
}

/// The limit that the hypervisor's control fields set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseLimit {
    /// No PAUSE exits.
    #[default]
    Off,
    /// Intel (VMCS fields 0x4020 and 0x4022): PAUSEs at most `gap` apart form a loop. A PAUSE more than `window` after
    /// the first of its loop exits.
    Ple {
        /// Longest time between two PAUSEs of one loop.
        gap: Picos,
        /// Longest duration of a loop that does not exit.
        window: Picos,
    },
    /// AMD (VMCB offsets 0x3e and 0x3c): a VM entry loads the counter, and each PAUSE decrements it. A PAUSE that finds
    /// it at zero exits. A PAUSE more than `threshold` after the last one reloads the counter instead.
    Filter {
        /// Number of PAUSEs that do not exit.
        count: u64,
        /// Longest time between two PAUSEs of one loop. With zero every PAUSE counts, whatever its distance.
        threshold: Picos,
    },
}

/// The pause-loop detector of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseDetector {
    limit: PauseLimit,
    /// Intel: time of the first PAUSE of the current loop. AMD: `Some` if there was a PAUSE since the entry.
    first: Option<Time>,
    last: Time,
    /// AMD: number of further PAUSEs that do not exit.
    left: u64,
}

impl PauseDetector {
    /// Sets the limit, which takes effect at the next entry.
    pub fn set(&mut self, limit: PauseLimit) {
        self.limit = limit;
    }

    /// Resets the detector, as each VM entry does.
    pub fn enter(&mut self) {
        self.first = None;
        self.last = Time(0);
        self.left = match self.limit {
            PauseLimit::Filter { count, .. } => count,
            PauseLimit::Off | PauseLimit::Ple { .. } => 0,
        };
    }

    /// Returns whether the detector ignores PAUSEs in the kernel, or in user mode.
    #[inline]
    fn ignores(&self, in_kernel: bool) -> bool {
        match self.limit {
            PauseLimit::Off => true,
            PauseLimit::Ple { .. } => !in_kernel,
            PauseLimit::Filter { .. } => false,
        }
    }

    /// Executes a PAUSE at `time`. Returns whether it exits.
    #[inline]
    pub fn pause(&mut self, in_kernel: bool, time: Time) -> bool {
        if self.ignores(in_kernel) {
            return false;
        }
        let exits = self.pauses_before_exit(in_kernel, time, Picos::ZERO) == 0;
        self.count(time);
        exits
    }

    /// Updates the state for a PAUSE at `time`.
    #[inline]
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

    /// Intel: returns the start of the loop to which a PAUSE at `time` belongs.
    fn loop_start(&self, gap: Picos, time: Time) -> Time {
        match self.first {
            Some(first) if time.since(self.last) <= gap => first,
            _ => time,
        }
    }

    /// AMD: returns whether a PAUSE at `time` reloads the counter. The first PAUSE after an entry does so too, since
    /// its predecessor came before the exit. That is uncertain: the manual does not say.
    fn reloads(&self, threshold: Picos, time: Time) -> bool {
        threshold != Picos::ZERO && (self.first.is_none() || time.since(self.last) > threshold)
    }

    /// Returns how many of the PAUSEs at `next`, `next + period`, ... pass before one exits, or `u64::MAX` if none
    /// exits.
    #[inline]
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

    /// Updates the state for `count` skipped PAUSEs at `next`, `next + period`, ..., of which none may exit.
    #[inline]
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
        /// Skipping PAUSEs leaves the state that executing them leaves, and exits at the same PAUSE.
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

    /// Returns the pause exits, each with the time of the entry before it, of a loop that pauses every `period` until
    /// `end`. Every `other` there is an exit of another kind. With `clears` entries reset the detector.
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

    /// Returns whether no PAUSE exits within the window after an entry.
    fn is_forgotten_at_entry(exits: &[(u64, u64)]) -> bool {
        exits.iter().all(|(entry, exit)| exit - entry > 100)
    }

    #[test]
    fn an_entry_forgets_the_loop_and_a_detector_that_does_not_is_caught() {
        // The other exits come too often for a loop to fill the window.
        assert_eq!(exits(PLE, 5, 1_000, 50, true), []);
        assert!(is_forgotten_at_entry(&exits(PLE, 5, 1_000, 250, true)));
        assert_eq!(exits(filter(15, 10), 5, 1_000, 50, true), []);
        assert!(!is_forgotten_at_entry(&exits(PLE, 5, 1_000, 50, false)));
        assert!(!exits(filter(15, 10), 5, 1_000, 50, false).is_empty());
    }

    #[test]
    fn intel_detects_loops_in_the_kernel_only_and_amd_at_any_cpl() {
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
    fn pauses_at_the_longest_distance_are_still_a_loop() {
        // A distance of exactly the gap or threshold, of all pauses and of only the first two.
        for limit in [PLE, filter(7, 10)] {
            let mut detector = entered(limit);
            assert!((1..100).any(|k| detector.pause(true, Time(k * 10))), "{limit:?}");
            for (period, exits) in [(10, true), (11, false)] {
                let mut detector = entered(limit);
                detector.pause(true, Time(10));
                let passes = detector.pauses_before_exit(true, Time(20), Picos(period));
                assert_eq!(passes != u64::MAX, exits, "{limit:?}, every {period} ps");
            }
        }
    }

    #[test]
    fn the_window_and_the_count_are_exact() {
        // The loop begins at 10 and its window ends at 110.
        let mut detector = entered(PLE);
        assert_eq!(detector.pauses_before_exit(true, Time(10), Picos(10)), 11);
        detector.pause(true, Time(10));
        assert_eq!(detector.pauses_before_exit(true, Time(20), Picos(9)), 11);
        let mut detector = entered(filter(7, 10));
        assert_eq!(detector.pauses_before_exit(true, Time(10), Picos(10)), 8);
        detector.pause(true, Time(10));
        assert_eq!(detector.pauses_before_exit(true, Time(20), Picos(10)), 7);
        // The next pause is too late and reloads the counter.
        assert_eq!(detector.pauses_before_exit(true, Time(21), Picos(10)), 8);
    }

    #[test]
    fn a_limit_takes_effect_at_the_next_entry() {
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
