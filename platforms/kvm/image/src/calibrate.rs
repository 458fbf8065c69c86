//! How many iterations of an empty loop a nanosecond of undisturbed time has.
//!
//! Computing must not be shortened by the host's preemption, so it counts instructions, not time. Preemption meets few of many
//! short samples: the middle one counts. The shortest would not do: the other CPUs compute meanwhile, as they will do later, and
//! where two of them share a core, each is slower for it (1.8 times, seen); now and then one of them is away.

use crate::clock::{Record, Time};
use crate::instructions::spin;

/// Iterations of one sample: short beside a time slice, long beside a reading of the clock.
const ITERATIONS: u64 = 20_000;
const SAMPLES: usize = 61;
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
        let sample = || {
            let start = time.now(record);
            spin(ITERATIONS);
            time.now(record).saturating_sub(start)
        };
        let mut samples = [0; SAMPLES];
        samples.iter_mut().for_each(|place| *place = sample());
        samples.sort_unstable();
        Pace {
            scaled: (ITERATIONS << SHIFT) / samples[SAMPLES / 2].max(1),
        }
    }

    /// Executes what takes `ns` nanoseconds of undisturbed time.
    #[inline(always)]
    pub(crate) fn run(self, ns: u64) {
        spin(((u128::from(ns) * u128::from(self.scaled)) >> SHIFT) as u64);
    }
}
