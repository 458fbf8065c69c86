//! Several threads that do nothing but take one lock.
//!
//! **Bounded time**: threads check a flag between acquisitions. If each handover of a lock waits for the end of a time
//! slice, all threads still take the lock once more, which takes long. A lock that took more than four times the
//! measurement's length for this is not measured again in that table.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use holdfast_peers::{affinity, clock};

use super::lock::Lock;
use super::report::Waits;
use crate::work::Work;

/// Parameters of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Number of threads.
    pub threads: u32,
    /// Work of a thread while it holds the lock.
    pub work: Work,
    /// Length of the measurement.
    pub duration: Duration,
    /// Whether each thread stays on one CPU.
    pub pin: bool,
}

/// Conversion from ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ns_per_tick: f64,
}

impl Clock {
    /// Measures the rate of the clock.
    pub fn calibrated() -> Clock {
        Clock {
            ns_per_tick: clock::ns_per_tick(),
        }
    }

    fn ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// Outcome of one measurement.
pub struct Outcome {
    pub per_second: f64,
    pub fairness: f64,
    pub waits: Waits,
    pub drain: Duration,
}

/// A lock on its own cache lines. Lock and data share a line, as in real programs.
#[repr(align(128))]
struct Alone<L>(L);

/// Measures a lock once.
pub fn once<L: Lock>(cell: &Cell, clock: Clock) -> Outcome {
    let lock = &Alone(L::new()).0;
    let stop = &AtomicBool::new(false);
    let start = &Barrier::new(cell.threads as usize + 1);
    thread::scope(|scope| {
        let spawn = |index| {
            scope.spawn(move || {
                if cell.pin {
                    // If pinning is refused, the system places this thread.
                    affinity::pin(index as usize);
                }
                let mut waits = empty();
                start.wait();
                contend(lock, cell.work, stop, &mut waits);
                waits
            })
        };
        let threads: Vec<_> = (0..cell.threads).map(spawn).collect();
        start.wait();
        let begin = Instant::now();
        thread::sleep(cell.duration);
        stop.store(true, Relaxed);
        let end = Instant::now();
        let waits: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no section panics"))
            .collect();
        outcome(&waits, end - begin, end.elapsed(), clock)
    })
}

/// Takes the lock repeatedly. Acquisitions after the end do not count.
fn contend<L: Lock>(lock: &L, work: Work, stop: &AtomicBool, waits: &mut Histogram<u64>) {
    loop {
        let asked = clock::ticks();
        let had = lock.with(|data| {
            let had = clock::ticks();
            if stop.load(Relaxed) {
                return None;
            }
            work.run(data);
            Some(had)
        });
        let Some(had) = had else { return };
        waits.saturating_record(had.saturating_sub(asked));
    }
}

/// Returns an empty histogram with two significant digits, up to 2^40 ticks.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 40, 2).expect("valid bounds")
}

fn outcome(threads: &[Histogram<u64>], elapsed: Duration, drain: Duration, clock: Clock) -> Outcome {
    let counts = || threads.iter().map(Histogram::len);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let mut all = empty();
    for waits in threads {
        all.add(waits).expect("the same bounds");
    }
    let quantile = |quantile| clock.ns(all.value_at_quantile(quantile));
    Outcome {
        per_second: counts().sum::<u64>() as f64 / elapsed.as_secs_f64(),
        fairness: least as f64 / most.max(1) as f64,
        waits: Waits {
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: clock.ns(all.max()),
        },
        drain,
    }
}
