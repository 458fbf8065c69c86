//! Progress of a submitted plan, from its file and the records in its cache.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::lines::{self, Line};
use super::{Cache, Header, Id};
use crate::diagnostic::{Place, Problem, Problems};

/// Progress of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Name of the experiment.
    pub experiment: String,
    /// Number of all units; with `--until-ci` of those in the round that was submitted last.
    pub units: usize,
    /// Units with a record, also those that had one when the plan was submitted.
    pub done: usize,
    /// Units among them whose run failed.
    pub failed: usize,
    /// CPU time in seconds that the units without a record will take; null without any record to predict it from.
    pub left_cpu_s: Option<f64>,
    /// Mean number of runs at the same time, since the first record; null without two records.
    pub at_once: Option<f64>,
    /// Time in seconds until the last record, at that rate; null where either is unknown.
    pub left_s: Option<f64>,
}

/// A unit's record, as far as it shows progress.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ended: SystemTime,
    wall_s: f64,
}

/// Returns the progress of the plan in the file at `path`, whose records are in `cache`. `now`: the time on the clock
/// of the machine that has the cache.
///
/// # Errors
/// If the file cannot be read, or has no plan.
pub fn status(path: &Path, cache: &Cache, now: SystemTime) -> Result<Status, Problems> {
    let mut header: Option<Header> = None;
    let mut listed: Vec<(Id, Option<f64>)> = Vec::new();
    for (_, line) in lines::read(path)? {
        match line {
            Ok(Line::Plan(plan)) => header = Some(*plan),
            Ok(Line::Unit(unit)) => listed.push((unit.id, unit.predicted_s)),
            Ok(Line::Record(_)) => {}
            Err(problem) => return Err(problem.into()),
        }
    }
    let Some(header) = header else {
        let place = Place::whole(&path.to_string_lossy());
        return Err(Problem::new(&place, "no plan", "a plan as `holdfast submit` writes it").into());
    };
    let mut left = Vec::new();
    let mut seen = Vec::new();
    let (mut failed, mut cpu_s) = (0, 0.0);
    for (id, predicted) in &listed {
        // A damaged record is no progress: its unit is run again.
        let record = cache.get(*id).ok().flatten();
        let Some(record) = record else {
            left.push(*predicted);
            continue;
        };
        failed += usize::from(record.failure.is_some());
        cpu_s += record.cost.cpu_s.unwrap_or(record.cost.wall_s);
        let written = cache.path(*id).metadata().and_then(|file| file.modified());
        seen.extend(written.ok().map(|ended| Seen {
            ended,
            wall_s: record.cost.wall_s,
        }));
    }
    let mean = (!seen.is_empty()).then(|| cpu_s / seen.len() as f64);
    let left_cpu_s = left
        .iter()
        .try_fold(0.0, |sum, predicted| Some(sum + predicted.or(mean)?));
    let last = seen.iter().map(|it| it.ended).max();
    let elapsed_s = elapsed_s(&seen, last.filter(|_| left.is_empty()).unwrap_or(now));
    let wall_s: f64 = seen.iter().map(|it| it.wall_s).sum();
    // The plan of a round of --until-ci has more units than the round may ever need.
    let units = match header.options.adaptive {
        Some(_) => listed.len(),
        None => header.units,
    };
    Ok(Status {
        experiment: header.experiment,
        units,
        done: units.saturating_sub(left.len()),
        failed,
        left_cpu_s,
        at_once: elapsed_s.map(|elapsed| wall_s / elapsed),
        left_s: left_cpu_s
            .zip(elapsed_s)
            .map(|(left, elapsed)| left * elapsed / cpu_s.max(f64::MIN_POSITIVE)),
    })
}

/// Returns the time in seconds from the begin of the first of these runs until `end`, or `None` if it is too short for
/// a rate.
fn elapsed_s(seen: &[Seen], end: SystemTime) -> Option<f64> {
    if seen.len() < 2 {
        return None;
    }
    let begun = seen.iter().map(|it| {
        let wall = Duration::try_from_secs_f64(it.wall_s).unwrap_or_default();
        it.ended.checked_sub(wall).unwrap_or(it.ended)
    });
    let elapsed = end.duration_since(begun.min()?).ok()?.as_secs_f64();
    (elapsed > 0.0).then_some(elapsed)
}
