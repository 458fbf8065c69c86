//! Rounds of measurements, and the rows that they fill: every round measures each lock once.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;

use holdfast_lab::stats::Summary;

use super::contended::{Cell, Clock, Outcome};
use super::contestant::Contestant;
use super::report::{ContendedRow, Origin, Uncontended, UncontendedRow, Waits};
use super::settings::Settings;

/// A lock is given up if its threads need more than this many lengths of a measurement to stop.
const PATIENCE: u32 = 4;

/// Measures each contestant once in each round.
pub fn uncontended(
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
    // It ends with an error, since nothing was sent.
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

/// Measures each contestant once in each round.
pub fn contended(
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

/// Sets the ratios of all rows.
fn compare(rows: &mut [ContendedRow]) {
    let Some(best) = best_peer(rows.iter().map(|row| (row.origin, row.per_second)), f64::max) else {
        return;
    };
    let mut peers = rows.iter().filter(|row| row.origin == Origin::Peer);
    let best_waits = peers.find(|row| row.per_second == Some(best)).and_then(|row| row.wait);
    for row in rows {
        row.ratio = row.per_second.map(|rate| rate / best);
        // No wait is shorter than the resolution of the clock.
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

/// Returns the best figure of the peers. `better` chooses between two.
fn best_peer(rows: impl Iterator<Item = (Origin, Option<f64>)>, better: fn(f64, f64) -> f64) -> Option<f64> {
    rows.filter(|(origin, _)| *origin == Origin::Peer)
        .filter_map(|(_, figure)| figure)
        .reduce(better)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Overtaking;

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
