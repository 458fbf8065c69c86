//! How many iterations of an empty loop a nanosecond of undisturbed time has.
//!
//! Computing must not be shortened by the host's preemption, so it counts instructions, not time; and a sample that was
//! disturbed took longer: the shortest of many counts.

use crate::clock::{Record, Time};
use crate::instructions::spin;

/// Iterations of one sample: short beside a time slice, long beside a reading of the clock.
const ITERATIONS: u64 = 20_000;
const SAMPLES: u32 = 60;
const SHIFT: u32 = 20;

/// The pace of the empty loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Iterations per nanosecond, times 2^20.
    scaled: u64,
}

impl Pace {
    /// Measures on this CPU.
    pub(crate) fn measure(time: &Time, record: &Record) -> Pace {
        let sample = |_| {
            let start = time.now(record);
            spin(ITERATIONS);
            time.now(record).saturating_sub(start)
        };
        let shortest = (0..SAMPLES).map(sample).min().unwrap_or(1).max(1);
        Pace {
            scaled: (ITERATIONS << SHIFT) / shortest,
        }
    }

    /// Executes what takes `ns` nanoseconds of undisturbed time.
    #[inline(always)]
    pub(crate) fn run(self, ns: u64) {
        spin(((u128::from(ns) * u128::from(self.scaled)) >> SHIFT) as u64);
    }
}
