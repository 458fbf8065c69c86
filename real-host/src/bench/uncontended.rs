//! Lock and unlock by one thread, which nobody disturbs.
//!
//! A second thread exists, and sleeps: some C libraries leave the atomic instructions out of their mutexes while a process
//! has only one thread.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use holdfast_lab::stats::Summary;

use super::Settings;
use super::contestant::{Contestant, Lock};
use super::report::{Uncontended, UncontendedRow, best_peer};

/// Nanoseconds for lock, increment, unlock.
pub fn once<L: Lock>(iterations: u32) -> f64 {
    let lock = black_box(Box::new(L::new()));
    let start = Instant::now();
    for _ in 0..iterations {
        lock.with(|count| *count += 1);
    }
    let elapsed = start.elapsed();
    assert_eq!(lock.with(|count| *count), u64::from(iterations), "updates were lost");
    elapsed.as_nanos() as f64 / f64::from(iterations)
}

/// Each contestant once in each round.
pub fn measure(
    contestants: &[&Contestant],
    settings: &Settings,
    step: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<(), Uncontended> {
    let (end, ended) = mpsc::channel::<()>();
    let second = thread::spawn(move || ended.recv());
    let mut samples = vec![Vec::new(); contestants.len()];
    for _ in 0..settings.rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            if let Some(measure) = contestant.measure {
                samples.push((measure.uncontended)(settings.uncontended_iterations));
            }
            step(contestant.name)?;
        }
    }
    drop(end);
    // It ends with an error, because nothing was sent.
    let _ = second.join();
    let mut rows: Vec<UncontendedRow> = contestants
        .iter()
        .zip(samples)
        .map(|(contestant, samples)| UncontendedRow {
            lock: contestant.name.to_owned(),
            origin: contestant.origin,
            ns: Summary::of(&samples).map(|summary| summary.median),
            ratio: None,
            samples,
        })
        .collect();
    let best = best_peer(rows.iter().map(|row| (row.origin, row.ns)), f64::min);
    for row in &mut rows {
        row.ratio = row.ns.zip(best).map(|(ns, best)| ns / best);
    }
    ControlFlow::Continue(Uncontended { rows })
}
