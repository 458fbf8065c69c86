//! How many iterations of an empty loop a nanosecond of undisturbed time has.
//!
//! Computing must not be shortened by the host's preemption, so it counts instructions, not time. But a CPU does not
//! execute them at one pace: a sibling on its core, other tenants of the machine and its clock change it within
//! milliseconds (1.3 to 1.8 times, seen). So the clock is looked at now and then: a part that took about as long as
//! asked teaches the pace, one that took far longer was disturbed and counts as what was asked for.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::instructions::spin;

/// Iterations of one sample at boot: short beside a time slice, long beside a reading of the clock.
const ITERATIONS: u64 = 20_000;
const SAMPLES: usize = 61;
const SHIFT: u32 = 20;
/// A thousand iterations in a nanosecond, which no CPU executes.
const SCALED_MAX: u64 = 1000 << SHIFT;

/// Computing is done in parts of at most so many nanoseconds: long beside a reading of the clock, short beside an exit
/// or a handler, which are thereby seen.
const PART_NS: u64 = 2_000;
/// Parts from this length on, in nanoseconds, are looked at each time.
const LONG_NS: u64 = 1_000;
/// Shorter ones are not looked at: reading the clock would count.
const SHORT_NS: u64 = 200;
/// Of those between, one in so many is.
const LOOK_EVERY: u32 = 8;
/// A part that took so many times what was asked for was disturbed.
const DISTURBED: u64 = 2;
/// What one part teaches: this share of the difference.
const LEARN_SHARE: i64 = 8;
/// What a disturbed part teaches, since the CPU may indeed have become so slow: to be slower by this share.
const DISTURBED_SHARE: u64 = 64;

/// The pace of the empty loop on one CPU. Its own CPU changes it; a computing task that another CPU resumes may once
/// more.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Iterations per nanosecond, times 2^20. At least 1.
    scaled: AtomicU64,
    /// Computings until the next that is looked at.
    until_look: AtomicU32,
}

/// Iterations per nanosecond, times 2^20, as `now` tells the time: the middle one of many short samples, since
/// preemption meets few of them. The other CPUs compute meanwhile, as they will do later.
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
    /// None yet; usable in a `static`.
    pub(crate) const fn new() -> Pace {
        Pace {
            scaled: AtomicU64::new(1),
            until_look: AtomicU32::new(0),
        }
    }

    /// Begins with what [`measure`] found.
    pub(crate) fn begin(&self, scaled: u64) {
        // ORDERING: Relaxed, here and below: an estimate that nothing else depends on.
        self.scaled.store(scaled, Relaxed);
    }

    /// Executes what takes `ns` nanoseconds of undisturbed time, as `now` tells it.
    #[inline(always)]
    pub(crate) fn run(&self, ns: u64, now: impl Fn() -> u64) {
        self.run_by(ns, now, spin);
    }

    #[inline(always)]
    fn run_by(&self, ns: u64, now: impl Fn() -> u64, spin: impl Fn(u64)) {
        if ns < SHORT_NS || (ns < LONG_NS && !self.is_looked_at()) {
            return spin(self.iterations(ns));
        }
        let mut left = ns;
        while left >= SHORT_NS {
            let part = left.min(PART_NS);
            let begin = now();
            spin(self.iterations(part));
            let took = now().saturating_sub(begin);
            left = left.saturating_sub(self.learn(part, took));
        }
        spin(self.iterations(left));
    }

    fn is_looked_at(&self) -> bool {
        let until_look = self.until_look.load(Relaxed);
        self.until_look
            .store(until_look.checked_sub(1).unwrap_or(LOOK_EVERY - 1), Relaxed);
        until_look == 0
    }

    #[inline(always)]
    fn iterations(&self, ns: u64) -> u64 {
        ((u128::from(ns) * u128::from(self.scaled.load(Relaxed))) >> SHIFT) as u64
    }

    /// Learns from a part that should have taken `asked` nanoseconds and took `took`. Returns how many of them are
    /// computed.
    fn learn(&self, asked: u64, took: u64) -> u64 {
        let scaled = self.scaled.load(Relaxed);
        let (learnt, computed) = if took > DISTURBED * asked {
            (scaled - scaled / DISTURBED_SHARE, asked)
        } else {
            let seen = (u128::from(scaled) * u128::from(asked) / u128::from(took.max(asked / DISTURBED))) as i64;
            let learnt = scaled.saturating_add_signed((seen - scaled as i64) / LEARN_SHARE);
            (learnt, took.max(asked / DISTURBED))
        };
        self.scaled.store(learnt.clamp(1, SCALED_MAX), Relaxed);
        computed
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A CPU that executes an iteration in so many nanoseconds, and is taken away at some times.
    struct Machine {
        now: Cell<f64>,
        executed: Cell<u64>,
        ns_per_iteration: Cell<f64>,
        /// When it is taken away next, how often, for how long.
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
                // It has learnt by then.
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
        // Away for slices of a host, and for exits on a host where they are dear.
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
        // Standing still, and running backwards.
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
