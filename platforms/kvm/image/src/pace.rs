//! The pace of computing: iterations of an empty loop per nanosecond of undisturbed time.
//!
//! The host's preemption must not shorten computing, so computing counts instructions and not time. But the pace of a
//! CPU changes by a factor of 1.3 to 1.8 within milliseconds (measured): with the load of its sibling thread, with
//! other tenants of the machine, and with its clock. So the clock is read now and then. A part that takes about the
//! requested time updates the pace. A part that takes far longer was disturbed, and counts as the requested time.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::instructions::spin;

/// Iterations of one sample at boot. A sample is short compared with a time slice and long compared with a reading of
/// the clock.
const ITERATIONS: u64 = 20_000;
const SAMPLES: usize = 61;
const SHIFT: u32 = 20;
/// An upper bound of the pace: a thousand iterations per nanosecond, which no CPU reaches.
const SCALED_MAX: u64 = 1000 << SHIFT;

/// Longest part of a computation in nanoseconds. A part is long compared with a reading of the clock and short compared
/// with an exit or a handler, so that these are noticed.
const PART_NS: u64 = 2_000;
/// Shortest part in nanoseconds that is always timed.
const LONG_NS: u64 = 1_000;
/// Shortest part in nanoseconds that is timed at all. In a shorter one the reading of the clock would dominate.
const SHORT_NS: u64 = 200;
/// One in this many of the parts between these two lengths is timed.
const TIME_EVERY: u32 = 8;
/// A part that takes more than this many times the requested time was disturbed.
const DISTURBED: u64 = 2;
/// Divisor of the difference by which one part changes the pace.
const UPDATE_DIVISOR: i64 = 8;
/// A disturbed part lowers the pace by this fraction, since the CPU may really have become that slow.
const DISTURBED_DIVISOR: u64 = 64;

/// The pace of the empty loop on one CPU. Only its own CPU changes it, except that a computing task may update it once
/// more after another CPU has resumed it.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Iterations per nanosecond, times 2^20, at least 1.
    scaled: AtomicU64,
    /// Number of computations until the next timed one.
    until_timed: AtomicU32,
}

/// Returns the iterations per nanosecond, times 2^20, on the clock `now`. It is the median of many short samples, of
/// which preemption disturbs only a few. The other CPUs compute meanwhile, as they will do later.
pub(crate) fn measure(now: impl Fn() -> u64) -> u64 {
    let sample = || {
        let begin = now();
        spin(ITERATIONS);
        now().saturating_sub(begin)
    };
    let mut samples = [0; SAMPLES];
    samples.iter_mut().for_each(|place| *place = sample());
    samples.sort_unstable();
    ((ITERATIONS << SHIFT) / samples[SAMPLES / 2].max(1)).clamp(1, SCALED_MAX)
}

impl Pace {
    /// Returns a pace that [`Pace::begin`] must replace.
    pub(crate) const fn new() -> Pace {
        Pace {
            scaled: AtomicU64::new(1),
            until_timed: AtomicU32::new(0),
        }
    }

    /// Sets the initial pace, which [`measure`] returned.
    pub(crate) fn begin(&self, scaled: u64) {
        // ORDERING: Relaxed, here and below; the pace is an estimate and publishes no other data.
        self.scaled.store(scaled, Relaxed);
    }

    /// Computes for `ns` nanoseconds of undisturbed time on the clock `now`.
    #[inline(always)]
    pub(crate) fn run(&self, ns: u64, now: impl Fn() -> u64) {
        self.run_by(ns, now, spin);
    }

    #[inline(always)]
    fn run_by(&self, ns: u64, now: impl Fn() -> u64, spin: impl Fn(u64)) {
        if ns < SHORT_NS || (ns < LONG_NS && !self.is_timed()) {
            return spin(self.iterations(ns));
        }
        let mut left = ns;
        while left >= SHORT_NS {
            let part = left.min(PART_NS);
            let begin = now();
            spin(self.iterations(part));
            let took = now().saturating_sub(begin);
            left = left.saturating_sub(self.update(part, took));
        }
        spin(self.iterations(left));
    }

    fn is_timed(&self) -> bool {
        let until_timed = self.until_timed.load(Relaxed);
        self.until_timed
            .store(until_timed.checked_sub(1).unwrap_or(TIME_EVERY - 1), Relaxed);
        until_timed == 0
    }

    #[inline(always)]
    fn iterations(&self, ns: u64) -> u64 {
        ((u128::from(ns) * u128::from(self.scaled.load(Relaxed))) >> SHIFT) as u64
    }

    /// Updates the pace after a part that was to take `asked` nanoseconds and took `took`. Returns the nanoseconds that
    /// count as computed.
    fn update(&self, asked: u64, took: u64) -> u64 {
        let scaled = self.scaled.load(Relaxed);
        let (updated, computed) = if took > DISTURBED * asked {
            (scaled - scaled / DISTURBED_DIVISOR, asked)
        } else {
            let seen = (u128::from(scaled) * u128::from(asked) / u128::from(took.max(asked / DISTURBED))) as i64;
            let updated = scaled.saturating_add_signed((seen - scaled as i64) / UPDATE_DIVISOR);
            (updated, took.max(asked / DISTURBED))
        };
        self.scaled.store(updated.clamp(1, SCALED_MAX), Relaxed);
        computed
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A CPU with a given time per iteration, which the host preempts periodically.
    struct Machine {
        now: Cell<f64>,
        executed: Cell<u64>,
        ns_per_iteration: Cell<f64>,
        /// Time of the next preemption, time between two, and duration of each, in nanoseconds.
        away: Cell<(f64, f64, f64)>,
    }

    impl Machine {
        fn new(ns_per_iteration: f64) -> Machine {
            Machine {
                now: Cell::new(0.0),
                executed: Cell::new(0),
                ns_per_iteration: Cell::new(ns_per_iteration),
                away: Cell::new((f64::INFINITY, 0.0, 0.0)),
            }
        }

        fn run(&self, pace: &Pace, ns: u64) {
            let spin = |iterations: u64| {
                self.executed.set(self.executed.get() + iterations);
                let mut end = self.now.get() + iterations as f64 * self.ns_per_iteration.get();
                let (mut next, every, lasts) = self.away.get();
                while next < end {
                    end += lasts;
                    next += every + lasts;
                }
                self.away.set((next, every, lasts));
                self.now.set(end);
            };
            pace.run_by(ns, || self.now.get() as u64, spin);
        }
    }

    fn pace(ns_per_iteration: f64) -> Pace {
        let pace = Pace::new();
        pace.begin((f64::from(1 << SHIFT) / ns_per_iteration) as u64);
        pace
    }

    #[test]
    fn computing_takes_as_long_as_asked_whatever_the_cpu_does_to_its_pace() {
        for factor in [0.3, 0.6, 1.0, 1.8, 3.0] {
            for ns in [300, 700, 5_000, 400_000] {
                let (machine, pace) = (Machine::new(0.5), pace(0.5));
                machine.ns_per_iteration.set(0.5 * factor);
                // The pace has converged after this.
                (0..2_000).for_each(|_| machine.run(&pace, ns));
                let begin = machine.now.get();
                (0..100).for_each(|_| machine.run(&pace, ns));
                let each = (machine.now.get() - begin) / 100.0 / ns as f64;
                assert!((0.95..1.05).contains(&each), "{factor} times, {ns} ns: {each}");
            }
        }
    }

    #[test]
    fn preemption_and_handlers_shorten_nothing() {
        // Preemption for a host's time slices, and exits of different costs.
        for (every, lasts) in [(8e6, 8e6), (4e6, 50_000.0), (1e6, 5_000.0)] {
            for ns in [700, 5_000, 400_000] {
                let (machine, pace) = (Machine::new(0.5), pace(0.5));
                machine.away.set((1_000.0, every, lasts));
                let times = 200_000_000 / ns;
                (0..times).for_each(|_| machine.run(&pace, ns));
                let share = machine.executed.get() as f64 * 0.5 / (times * ns) as f64;
                assert!((0.97..1.03).contains(&share), "{lasts} ns in {every}, {ns} ns: {share}");
            }
        }
    }

    #[test]
    fn nothing_is_computed_in_no_time_and_a_wild_clock_ends_too() {
        let pace = pace(0.5);
        let executed = Cell::new(0);
        let spin = |iterations| executed.set(executed.get() + iterations);
        pace.run_by(0, || 0, spin);
        assert_eq!(executed.get(), 0);
        // A clock that stands still, and one that runs backwards.
        pace.run_by(100_000, || 7, spin);
        let back = Cell::new(u64::MAX);
        pace.run_by(
            100_000,
            || {
                back.set(back.get() - 1000);
                back.get()
            },
            spin,
        );
    }
}
