//! Several threads that want one lock and do nothing else.
//!
//! **Bounded time**: threads look at a flag between acquisitions. A lock of which each handover waits for a time slice to
//! end still lets all threads have it once more, which then takes long. A lock that took more than [`PATIENCE`] times the
//! measurement's length to do so is not measured again in that table.

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

/// What one measurement is made of.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// How many threads.
    pub threads: u32,
    /// What each does while it holds the lock.
    pub work: Work,
    /// For how long.
    pub duration: Duration,
    /// Whether each thread stays on one CPU.
    pub pin: bool,
}

/// From ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ns_per_tick: f64,
}

impl Clock {
    /// Measured now.
    pub fn calibrated() -> Clock {
        Clock {
            ns_per_tick: clock::ns_per_tick(),
        }
    }

    fn ns(self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// What one measurement found.
pub struct Outcome {
    pub per_second: f64,
    pub fairness: f64,
    pub waits: Waits,
    pub drain: Duration,
}

/// A lock on lines of its own. Its data shares the line with it, as in each program.
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
                    // If refused, the system places this thread.
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

/// Takes the lock again and again. What was acquired after the end does not count.
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

/// Two significant digits, up to 2^40 ticks.
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
