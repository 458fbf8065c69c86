//! Work inside a critical section.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Arithmetic that lasts for a while: a chain of multiplications, each of which needs the one before.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    links: u32,
}

impl Work {
    /// Creates work of about `duration` on this CPU at its current clock rate.
    pub fn lasting(duration: Duration) -> Work {
        const LINKS: u32 = 200_000;
        let sample = Work { links: LINKS };
        let time = || {
            let start = Instant::now();
            sample.run(&mut black_box(1));
            start.elapsed()
        };
        // The shortest time, since the others were disturbed.
        let shortest = (0..20).map(|_| time()).min().expect("20 samples");
        let links = duration.as_nanos() as f64 * f64::from(LINKS) / shortest.as_nanos().max(1) as f64;
        Work {
            links: links.round() as u32,
        }
    }

    /// Runs the work on the data behind the lock.
    #[inline]
    pub fn run(self, data: &mut u64) {
        let mut value = *data;
        for _ in 0..self.links {
            // Opaque, so that the compiler cannot shorten the chain.
            value = black_box(value).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
        *data = value;
    }
}
