//! Random streams: one per purpose and work item, so that a change of a mechanism does not change the work.

/// Returns the seed of the random stream `purpose` of guest `guest`. Seeds of different purposes, guests and run seeds
/// are unrelated, and the same on every platform.
pub fn stream_seed(seed: u64, guest: u32, purpose: &str) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    add(&mut state, seed);
    add(&mut state, u64::from(guest));
    for chunk in purpose.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        add(&mut state, u64::from_le_bytes(bytes));
    }
    add(&mut state, purpose.len() as u64);
    state
}

/// Mixes `word` into the state, by one multiplication and one fold: every bit of the state depends on every earlier
/// word.
fn add(state: &mut u64, word: u64) {
    let product = u128::from(*state ^ word) * 0xa076_1d64_78bd_642f_u128;
    *state = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32);
}

/// A stream of pseudo-random numbers (SplitMix64, which is small and fast, and has no bad seeds).
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// Makes the stream of `item` for a purpose with the seed `purpose_seed`.
    pub(crate) fn new(purpose_seed: u64, item: u32) -> Self {
        let mut stream = Stream(purpose_seed ^ u64::from(item).wrapping_mul(0xd6e8_feb8_6659_fd93));
        stream.next();
        stream
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number uniformly from `0..bound`. Returns 0 for an empty range.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    /// Draws a number uniformly from [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a log-normal number with mean 1. `sigma` is the standard deviation of its logarithm.
    pub(crate) fn log_normal(&mut self, sigma: f64) -> f64 {
        // Box-Muller transform. 1 - u is never 0.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        let normal = radius * libm::cos(2.0 * core::f64::consts::PI * self.unit());
        libm::exp(sigma * normal - sigma * sigma / 2.0)
    }

    /// Draws a log-normal count with mean `mean`.
    pub(crate) fn count(&mut self, mean: u32, sigma: f64) -> u32 {
        let count = f64::from(mean) * self.log_normal(sigma);
        libm::round(count.min(f64::from(u32::MAX / 2))) as u32
    }

    /// Draws a log-normal time with mean `mean_ns`, in nanoseconds.
    pub(crate) fn time(&mut self, mean_ns: u64, sigma: f64) -> u64 {
        (mean_ns as f64 * self.log_normal(sigma)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_guests_and_seeds_give_different_seeds() {
        let seeds = [
            stream_seed(1, 0, "jobs"),
            stream_seed(2, 0, "jobs"),
            stream_seed(1, 1, "jobs"),
            stream_seed(1, 0, "pages"),
            stream_seed(1, 0, "jobs\0"),
        ];
        for (index, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..index].contains(seed));
        }
    }

    #[test]
    fn the_mean_does_not_depend_on_the_spread() {
        for sigma in [0.1, 0.5, 0.8] {
            let mut stream = Stream::new(7, 0);
            let n = 200_000;
            let mean = (0..n).map(|_| stream.log_normal(sigma)).sum::<f64>() / f64::from(n);
            assert!((mean - 1.0).abs() < 0.01, "sigma {sigma}: mean {mean}");
        }
    }

    #[test]
    fn items_have_streams_of_their_own() {
        let first = |item| Stream::new(42, item).next();
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(4));
        assert_ne!(Stream::new(42, 3).next(), Stream::new(43, 3).next());
    }

    #[test]
    fn below_reaches_exactly_the_numbers_below_the_bound() {
        let mut stream = Stream::new(1, 1);
        let mut seen = [0; 5];
        for _ in 0..5_000 {
            seen[stream.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(stream.below(0), 0);
    }
}
