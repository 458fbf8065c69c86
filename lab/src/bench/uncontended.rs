//! Lock and unlock by one thread alone.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::stats::Summary;

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
    let mut samples = vec![Vec::new(); contestants.len()];
    for _ in 0..settings.rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            if let Some(measure) = contestant.measure {
                samples.push((measure.uncontended)(settings.uncontended_iterations));
            }
            step(contestant.name)?;
        }
    }
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
