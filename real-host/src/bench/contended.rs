//! Several threads that want one lock and do nothing else.
//!
//! **Bounded time**: threads look at a flag between acquisitions. A lock of which each handover waits for a time slice to
//! end still lets all threads have it once more, which then takes long. A lock that took more than [`PATIENCE`] times the
//! measurement's length to do so is not measured again in that table.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use holdfast_lab::stats::Summary;
use holdfast_peers::{affinity, clock};

use super::Origin;
use super::contestant::{Contestant, Lock};
use super::report::{ContendedRow, Waits, best_peer};
use crate::work::Work;

/// See **Bounded time**.
const PATIENCE: u32 = 4;

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
    per_second: f64,
    fairness: f64,
    waits: Waits,
    drain: Duration,
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

/// Each contestant once in each round.
pub fn measure(
    contestants: &[&Contestant],
    cell: &Cell,
    clock: Clock,
    rounds: u32,
    step: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<(), Vec<ContendedRow>> {
    let mut outcomes: Vec<Vec<Outcome>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contestant, outcomes) in contestants.iter().zip(&mut outcomes) {
            let collapsed = outcomes.iter().any(|outcome| outcome.drain > PATIENCE * cell.duration);
            if let Some(measure) = contestant.measure.filter(|_| !collapsed) {
                outcomes.push((measure.contended)(cell, clock));
            }
            step(contestant.name)?;
        }
    }
    let mut rows: Vec<_> = contestants.iter().zip(&outcomes).map(|(c, o)| row(c, o)).collect();
    compare(&mut rows);
    ControlFlow::Continue(rows)
}

/// Sets the ratios.
fn compare(rows: &mut [ContendedRow]) {
    let Some(best) = best_peer(rows.iter().map(|row| (row.origin, row.per_second)), f64::max) else {
        return;
    };
    let mut peers = rows.iter().filter(|row| row.origin == Origin::Peer);
    let best_waits = peers.find(|row| row.per_second == Some(best)).and_then(|row| row.wait);
    for row in rows {
        row.ratio = row.per_second.map(|rate| rate / best);
        // No wait is shorter than what the clock resolves.
        let by = |best: Waits| move |wait: Waits| wait.p999_ns.max(1) as f64 / best.p999_ns.max(1) as f64;
        row.p999_ratio = best_waits.and_then(|best| row.wait.map(by(best)));
    }
}

fn row(contestant: &Contestant, outcomes: &[Outcome]) -> ContendedRow {
    let median = |figure: fn(&Outcome) -> f64| {
        let figures: Vec<f64> = outcomes.iter().map(figure).collect();
        Summary::of(&figures).map(|summary| summary.median)
    };
    let wait = |figure: fn(&Outcome) -> f64| median(figure).map_or(0, |ns| ns as u64);
    ContendedRow {
        lock: contestant.name.to_owned(),
        origin: contestant.origin,
        per_second: median(|outcome| outcome.per_second),
        ratio: None,
        fairness: median(|outcome| outcome.fairness),
        overtaking: contestant.overtaking,
        wait: outcomes
            .iter()
            .map(|outcome| outcome.waits.max_ns)
            .max()
            .map(|max_ns| Waits {
                p50_ns: wait(|outcome| outcome.waits.p50_ns as f64),
                p99_ns: wait(|outcome| outcome.waits.p99_ns as f64),
                p999_ns: wait(|outcome| outcome.waits.p999_ns as f64),
                max_ns,
            }),
        p999_ratio: None,
        drain_ns: outcomes.iter().map(|outcome| outcome.drain.as_nanos() as u64).max(),
        samples: outcomes.iter().map(|outcome| outcome.per_second).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Overtaking;

    fn row(origin: Origin, per_second: f64, p999_ns: u64) -> ContendedRow {
        ContendedRow {
            lock: String::new(),
            origin,
            per_second: Some(per_second),
            ratio: None,
            fairness: None,
            overtaking: Overtaking::Never,
            wait: Some(Waits {
                p50_ns: 0,
                p99_ns: 0,
                p999_ns,
                max_ns: p999_ns,
            }),
            p999_ratio: None,
            drain_ns: None,
            samples: Vec::new(),
        }
    }

    #[test]
    fn waits_are_compared_with_the_peer_that_is_fastest() {
        let mut rows = [
            row(Origin::Holdfast, 30.0, 500),
            row(Origin::Peer, 10.0, 1),
            row(Origin::Peer, 20.0, 1000),
        ];
        compare(&mut rows);
        let ratios = rows.map(|row| (row.ratio, row.p999_ratio));
        assert_eq!(
            ratios,
            [(Some(1.5), Some(0.5)), (Some(0.5), Some(0.001)), (Some(1.0), Some(1.0))]
        );
    }

    #[test]
    fn without_peers_there_are_no_ratios() {
        let mut rows = [row(Origin::Holdfast, 30.0, 500)];
        compare(&mut rows);
        assert_eq!((rows[0].ratio, rows[0].p999_ratio), (None, None));
    }
}
