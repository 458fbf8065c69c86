//! Load tracking: geometric averages of what is runnable, with a half-life of 2^25 ns, 33.6 ms (Linux 3.8 and later).
//!
//! The kernel averages in segments of 2^20 ns; here time is continuous, its decay interpolated within a segment.

/// The number of fractional bits of a tracked load.
const FRACTION: u32 = 10;

/// 2^32 times 2^(-n/32).
#[rustfmt::skip]
const DECAY: [u64; 33] = [
    0x100000000, 0x0fa83b2db, 0x0f5257d15, 0x0efe4b99b, 0x0eac0c6e7, 0x0e5b906e7,
    0x0e0ccdeec, 0x0dbfbb797, 0x0d744fcca, 0x0d2a81d91, 0x0ce248c15, 0x0c9b9bd86,
    0x0c5672a11, 0x0c12c4cca, 0x0bd08a39f, 0x0b8fbaf47, 0x0b504f333, 0x0b123f581,
    0x0ad583eea, 0x0a9a15ab4, 0x0a5fed6a9, 0x0a2704303, 0x09ef53260, 0x09b8d39b9,
    0x09837f051, 0x094f4efa8, 0x091c3d373, 0x08ea4398b, 0x08b95c1e3, 0x088980e80,
    0x085aac367, 0x082cd8698, 0x080000000,
];

/// Returns `value` after `ns` without load.
fn decayed(value: u64, ns: u64) -> u64 {
    let halvings = ns >> 25;
    if halvings >= 64 {
        return 0;
    }
    let within = ns & ((1 << 25) - 1);
    let (step, rest) = ((within >> 20) as usize, within & ((1 << 20) - 1));
    let factor = DECAY[step] - (((DECAY[step] - DECAY[step + 1]) * rest) >> 20);
    ((u128::from(value) * u128::from(factor)) >> 32) as u64 >> halvings
}

/// A load, averaged over its recent past.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tracked {
    average: u64,
    /// The time of the last update. Nanoseconds.
    at: u64,
}

impl Tracked {
    /// Returns the average of a constant `load`.
    #[cfg(test)]
    pub(crate) fn steady(load: u64) -> Tracked {
        Tracked {
            average: load << FRACTION,
            at: 0,
        }
    }

    /// Handles its arrival at its queue after a time without load. At its first arrival it counts with its whole
    /// `weight`.
    pub(crate) fn arrive(&mut self, now: u64, weight: u64) {
        if self.at == 0 && self.average == 0 {
            self.average = weight << FRACTION;
            self.at = now;
        }
        self.advance(now, 0);
    }

    /// Updates the average: from the last update to `now` there was `load`.
    pub(crate) fn advance(&mut self, now: u64, load: u64) {
        let passed = now - self.at;
        if passed == 0 {
            return;
        }
        self.at = now;
        let load = load << FRACTION;
        self.average = if self.average >= load {
            load + decayed(self.average - load, passed)
        } else {
            load - decayed(load - self.average, passed)
        };
    }

    /// Adds the average of a part, of the same time.
    pub(crate) fn add(&mut self, part: Tracked) {
        self.average += part.average;
    }

    /// Subtracts the average of a part. Rounding may have left less than that.
    pub(crate) fn sub(&mut self, part: Tracked) {
        self.average = self.average.saturating_sub(part.average);
    }

    /// Returns the load.
    pub(crate) fn load(self) -> u64 {
        self.average >> FRACTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_halves_in_its_half_life() {
        let mut tracked = Tracked::steady(1024);
        tracked.advance(1 << 25, 0);
        assert_eq!(tracked.load(), 512);
        tracked.advance(3 << 25, 0);
        assert_eq!(tracked.load(), 128);
        tracked.advance(u64::MAX, 0);
        assert_eq!(tracked.load(), 0);
    }

    #[test]
    fn only_the_first_arrival_counts_with_the_whole_weight() {
        let mut tracked = Tracked::default();
        tracked.arrive(1 << 25, 1024);
        assert_eq!(tracked.load(), 1024);
        // Its average is 0 after a long sleep, and halves in a short one that starts at power-on.
        tracked.arrive(1 << 40, 1024);
        assert_eq!(tracked.load(), 0);
        let mut early = Tracked::steady(300);
        early.arrive(1 << 25, 1024);
        assert_eq!(early.load(), 150);
    }

    #[test]
    fn steps_and_jumps_agree() {
        let (mut steps, mut jump) = (Tracked::steady(300), Tracked::steady(300));
        (1..=400).for_each(|step| steps.advance(step * 250_000, 1024));
        jump.advance(100_000_000, 1024);
        assert!(steps.load().abs_diff(jump.load()) <= 2, "{steps:?} {jump:?}");
    }
}
