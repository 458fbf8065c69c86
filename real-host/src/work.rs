//! What is done inside a critical section.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Arithmetic that lasts for a while: a chain of multiplications, each of which needs the one before.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    links: u32,
}

impl Work {
    /// Work of about `duration` on this CPU, at the clock rate that it has now.
    pub fn lasting(duration: Duration) -> Work {
        const LINKS: u32 = 200_000;
        let sample = Work { links: LINKS };
        let time = || {
            let start = Instant::now();
            sample.run(&mut black_box(1));
            start.elapsed()
        };
        // The shortest: the others were disturbed.
        let shortest = (0..20).map(|_| time()).min().expect("20 samples");
        let links = duration.as_nanos() as f64 * f64::from(LINKS) / shortest.as_nanos().max(1) as f64;
        Work {
            links: links.round() as u32,
        }
    }

    /// Does it, to the data behind the lock.
    #[inline]
    pub fn run(self, data: &mut u64) {
        let mut value = *data;
        for _ in 0..self.links {
            // Opaque, so that the chain is not solved at compile time.
            value = black_box(value).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
        *data = value;
    }
}
