//! Load averages of CPUs and tasks (`kernel/sched/pelt.c`).

use crate::local::{Local, Sum64};

/// The load of a task that has always been ready.
pub(crate) const TASK: u64 = 1 << 20;

/// log2 of the time in which an average loses half of its past, in nanoseconds: 32 periods of 2^20.
const HALF_LIFE: u32 = 25;
const PERIOD: u32 = 20;

/// How many tasks are ready, or whether a task is: an average over the past that halves in 33.6 ms. One [`TASK`] is
/// one of them.
///
/// It has one owner, the holder of the run queue's lock. Others may read it as a hint.
#[derive(Debug, Default)]
pub(crate) struct Average {
    value: Local,
    at: Local,
    /// Loads of tasks that other CPUs have taken away (`cfs_rq->removed`).
    removed: Sum64,
}

impl Average {
    /// Its value as of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.value.get()
    }

    /// Its value at `now` nanoseconds, if the load has been `load` since the last change.
    pub(crate) fn at(&self, now: u64, load: u32) -> u64 {
        decayed(
            self.value.get(),
            u64::from(load) * TASK,
            now.saturating_sub(self.at.get()),
        )
    }

    /// Accounts the time up to `now`, in which the load was `load`.
    pub(crate) fn account(&self, now: u64, load: u32) {
        let value = self.at(now, load).saturating_sub(self.removed.take());
        self.value.set(value);
        self.at.set(now);
    }

    /// Adds a task with the load `amount`.
    pub(crate) fn attach(&self, amount: u64) {
        self.value.add(amount);
    }

    /// Takes out a task with the load `amount`.
    pub(crate) fn take_out(&self, amount: u64) {
        self.value.set(self.value.get().saturating_sub(amount));
    }

    /// Takes out a task with the load `amount`, at the next change. Any CPU may call it.
    pub(crate) fn detach(&self, amount: u64) {
        self.removed.add(amount);
    }

    /// Begins at `now` with the load `amount`.
    pub(crate) fn begin(&self, now: u64, amount: u64) {
        self.value.set(amount);
        self.at.set(now);
    }
}

/// Powers of 2^(-1/32), with 32 binary places.
static POWERS: [u64; 33] = {
    let mut powers = [1 << 32; 33];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = (powers[exponent - 1] * 0xfa83_b2db) >> 32;
        exponent += 1;
    }
    powers
};

/// Returns what an average of `value` is after `elapsed` nanoseconds at `load`.
fn decayed(value: u64, load: u64, elapsed: u64) -> u64 {
    let halvings = elapsed >> HALF_LIFE;
    if halvings >= 32 {
        return load;
    }
    let rest = elapsed & ((1 << HALF_LIFE) - 1);
    let (period, part) = ((rest >> PERIOD) as usize, rest & ((1 << PERIOD) - 1));
    let factor = POWERS[period] - (((POWERS[period] - POWERS[period + 1]) * part) >> PERIOD);
    let far = u128::from(value.abs_diff(load));
    let left = ((far * u128::from(factor)) >> (32 + halvings)) as u64;
    if value > load { load + left } else { load - left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_comes_half_as_near_in_each_half_life() {
        let half = 1 << HALF_LIFE;
        for (elapsed, rest) in [
            (0, 1.0),
            (half, 0.5),
            (2 * half, 0.25),
            (half / 32, 0.978_572),
            (half / 2, core::f64::consts::FRAC_1_SQRT_2),
        ] {
            let fell = decayed(8 * TASK, 0, elapsed) as f64 / (8 * TASK) as f64;
            let rose = 1.0 - decayed(0, 8 * TASK, elapsed) as f64 / (8 * TASK) as f64;
            assert!(
                (fell - rest).abs() < 1e-5 && (rose - rest).abs() < 1e-5,
                "{elapsed}: {fell} {rose}"
            );
        }
        assert_eq!(decayed(5 * TASK, TASK, u64::MAX), TASK);
    }

    #[test]
    fn many_short_steps_are_one_long_one() {
        let average = Average::default();
        average.begin(0, 4 * TASK);
        for step in 1..=30_000 {
            average.account(step * 1_000, 1);
        }
        let once = decayed(4 * TASK, TASK, 30_000_000);
        assert!(average.last().abs_diff(once) < TASK / 20, "{} {once}", average.last());
    }

    #[test]
    fn what_others_take_away_leaves_at_the_next_change() {
        let average = Average::default();
        average.begin(5, 3 * TASK);
        average.detach(TASK);
        average.detach(TASK);
        assert_eq!(average.last(), 3 * TASK);
        average.account(5, 3);
        assert_eq!(average.last(), TASK);
        average.attach(TASK / 2);
        assert_eq!(average.last(), TASK + TASK / 2);
        average.detach(u64::from(u32::MAX));
        average.account(6, 0);
        assert_eq!(average.last(), 0, "it is never negative");
    }
}
