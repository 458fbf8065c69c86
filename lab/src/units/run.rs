//! Runs chosen units, and takes from the cache what is there.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::lines::{self, Line};
use super::{Build, Cache, Header, Id, Record, Shard, Unit, Units};
use crate::adaptive;
use crate::diagnostic::{Place, Problem, Problems};
use crate::file::WriteError;
use crate::plan::CellName;
use crate::run::{self, Ended, Execution, Outcomes, Slots};

/// The units that one process runs.
#[derive(Debug)]
pub struct Selection {
    /// The line of the whole plan.
    pub header: Header,
    /// The units of the plan, or of the cells that matter here.
    pub units: Units,
    /// Indices of the units to run, in this order.
    pub chosen: Vec<usize>,
}

impl Selection {
    /// Returns a short hash of the chosen units, in any order.
    pub fn digest(&self) -> String {
        let ids: BTreeSet<Id> = self.chosen.iter().map(|index| self.units.ids[*index]).collect();
        let ids: Vec<String> = ids.iter().map(Id::to_string).collect();
        let digest = super::digest(&[ids.join(" ")]);
        digest[..12].to_owned()
    }

    /// Returns the units of `shard`, or all units.
    pub fn new(units: Units, shard: Option<Shard>) -> Selection {
        let all: Vec<(Id, Option<f64>)> = units.ids.iter().map(|id| (*id, None)).collect();
        Selection {
            header: Header::of(&units),
            chosen: shard.map_or_else(|| (0..all.len()).collect(), |shard| shard.select(&all)),
            units,
        }
    }
}

/// Reads the plan and the units in the file at `path`, and chooses those of `shard`, or all.
///
/// # Errors
/// All damaged or foreign lines; a plan of another build.
pub fn load(path: &Path, build: Build, shard: Option<Shard>) -> Result<Selection, Problems> {
    let place = Place::whole(&path.to_string_lossy());
    let mut header: Option<Header> = None;
    let mut listed: Vec<(Place, Unit)> = Vec::new();
    let mut problems = Vec::new();
    for (place, line) in lines::read(path)? {
        match line {
            Ok(Line::Plan(plan)) if header.as_ref().is_some_and(|header| *header != *plan) => {
                problems.push(Problem::new(&place, "another plan", "one plan"));
            }
            Ok(Line::Plan(plan)) => header = Some(*plan),
            Ok(Line::Unit(unit)) => listed.push((place, *unit)),
            Ok(Line::Record(_)) => {}
            Err(wrong) => problems.push(wrong),
        }
    }
    let Some(header) = header else {
        let expected = "the line of the plan, which `holdfast plan --format jsonl` writes first";
        problems.insert(0, Problem::new(&place, "no plan", expected));
        return Err(Problems(problems));
    };
    if header.build != build.id {
        let found = format!("a plan of the build {} ({})", header.build, header.version);
        let expected = format!("one of this program's build {} ({})", build.id, build.version);
        problems.push(Problem::new(&place, &found, &expected));
    }
    if listed.is_empty() && problems.is_empty() {
        problems.push(Problem::new(&place, "no units", "a line for each unit to run"));
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    // The shard is chosen before cells are made: a process makes only the cells that it runs. Those of a large plan
    // would take longer than a few short units.
    let costs: Vec<(Id, Option<f64>)> = listed.iter().map(|(_, unit)| (unit.id, unit.predicted_s)).collect();
    let positions = shard.map_or_else(|| (0..costs.len()).collect(), |shard| shard.select(&costs));
    let mine: Vec<&(Place, Unit)> = positions.iter().map(|position| &listed[*position]).collect();
    let wanted: BTreeSet<CellName<'_>> = mine.iter().map(|(_, unit)| (&*unit.case, &*unit.variant)).collect();
    let units = Units::new(header.plan(build.extensions, Some(&wanted))?, &header.target, build);
    let mut chosen = Vec::new();
    for (place, unit) in mine {
        match units.of(unit.id).first() {
            Some(index) => chosen.push(*index),
            None => {
                let found = format!("the unit {}", unit.id);
                problems.push(Problem::new(place, &found, "a unit of the plan in this file"));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    Ok(Selection { header, units, chosen })
}

/// The units that a plan needs, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Indices of the units: all of them; or with `--until-ci` those of the rounds so far, and of the next one.
    pub all: Vec<usize>,
    /// Indices of those without a record in the cache.
    pub missing: Vec<usize>,
}

/// Returns the units that the plan of `units` needs, with the records in `cache`.
pub fn needed(units: &Units, cache: Option<&Cache>) -> Needed {
    let Some(adaptive) = units.plan.options.adaptive else {
        let all: Vec<usize> = (0..units.ids.len()).collect();
        let is_missing = |index: &usize| !cache.is_some_and(|cache| cache.has(units.ids[*index]));
        return Needed {
            missing: all.iter().copied().filter(is_missing).collect(),
            all,
        };
    };
    // A damaged record is none: its unit is run again.
    let outcome = |index: usize| {
        let record = cached_record(units, index, cache?, &|_| {})?;
        record.outcome(&units.plan.at(index).0.config).ok()
    };
    let round = adaptive::round(&units.plan, adaptive, outcome);
    Needed {
        all: round.runs,
        missing: round.missing,
    }
}

/// How units are run.
#[derive(Clone, Copy)]
pub struct Work<'w> {
    /// The units.
    pub units: &'w Units,
    /// Where records of finished units are, if anywhere.
    pub cache: Option<&'w Cache>,
    /// The runs.
    pub execution: Execution<'w>,
    /// Called with each damaged record in the cache. Its unit is run again.
    pub damaged: &'w (dyn Fn(&Problem) + Sync),
}

/// Number of units that [`run()`] finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Units that were run.
    pub ran: usize,
    /// Units whose records were in the cache.
    pub cached: usize,
    /// Units that were called off.
    pub left: usize,
}

/// Runs the `chosen` units, each identity once, or takes them from the cache. Gives each record to `end`, from any
/// thread, after it is in the cache.
///
/// # Errors
/// If the cache cannot be written, or `end` fails. No further unit is begun then.
pub fn run(
    chosen: &[usize],
    work: Work<'_>,
    end: &(dyn Fn(usize, Record) -> Result<(), WriteError> + Sync),
) -> Result<Finished, WriteError> {
    let units = work.units;
    let mut seen = HashSet::new();
    let chosen: Vec<usize> = chosen
        .iter()
        .copied()
        .filter(|index| seen.insert(units.ids[*index]))
        .collect();
    let failed = Mutex::new(None);
    let (ran, cached) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let check = |done: Result<(), WriteError>, count: &AtomicUsize| match done {
        Ok(()) => {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
            work.execution.call_off.call();
        }
    };
    let is_done = |index: usize| match work
        .cache
        .and_then(|cache| cached_record(units, index, cache, work.damaged))
    {
        None => false,
        Some(record) => {
            check(end(index, record), &cached);
            true
        }
    };
    let ended = |Ended { index, outcome, cost }: Ended| {
        let record = Record::of(units, index, &outcome, cost);
        let kept = match work.cache {
            Some(cache) if record.is_final() => cache.put(&record),
            _ => Ok(()),
        };
        check(kept.and_then(|()| end(index, record)), &ran);
    };
    run::each(&units.plan, &chosen, work.execution, &is_done, &ended);
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (ran, cached) = (ran.into_inner(), cached.into_inner());
    Ok(Finished {
        ran,
        cached,
        left: chosen.len() - ran - cached,
    })
}

/// Returns the record of the unit at `index` in `cache`, if there is a sound one.
fn cached_record(units: &Units, index: usize, cache: &Cache, damaged: &(dyn Fn(&Problem) + Sync)) -> Option<Record> {
    let id = units.ids[index];
    match cache.get(id) {
        Ok(record) => {
            let record = record?;
            match record.outcome(&units.plan.at(index).0.config) {
                Ok(_) => return Some(record.named(units, index)),
                Err(found) => {
                    let place = Place::whole(&cache.path(id).to_string_lossy());
                    damaged(&Problem::new(&place, found, "an outcome of this unit"));
                }
            }
        }
        Err(problem) => damaged(&problem),
    }
    None
}

/// Runs all units of a plan, or takes them from the cache. Returns their outcomes.
///
/// # Errors
/// If the cache cannot be written.
pub fn outcomes(work: Work<'_>) -> Result<(Outcomes, Finished), WriteError> {
    let plan = &work.units.plan;
    let slots = run::slots(plan);
    let all: Vec<usize> = (0..slots.len()).collect();
    let finished = fill(&all, work, &slots)?;
    let slots = slots.into_iter().map(OnceLock::into_inner).collect();
    Ok((Outcomes::new(plan, slots), finished))
}

/// Runs the `chosen` units, or takes them from the cache. Puts their outcomes, and those of equal units, into `slots`.
///
/// # Errors
/// If the cache cannot be written.
pub fn fill(chosen: &[usize], work: Work<'_>, slots: &Slots) -> Result<Finished, WriteError> {
    let units = work.units;
    run(chosen, work, &|index, record| {
        let outcome = record.outcome(&units.plan.at(index).0.config);
        let outcome = outcome.expect("a record of a run, or a sound one of the cache");
        for twin in units.of(record.id) {
            let _ = slots[*twin].set(outcome.clone());
        }
        Ok(())
    })
}
