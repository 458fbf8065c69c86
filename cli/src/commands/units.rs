//! `holdfast run` with `--units`, `--shard` or `--cache`.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use holdfast_lab::adaptive::{self, Adapted};
use holdfast_lab::diagnostic::{Problem, Problems};
use holdfast_lab::file::WriteError;
use holdfast_lab::options::Adaptive;
use holdfast_lab::plan::Plan;
use holdfast_lab::run::{self, Execution, Outcomes, Progress, Slots};
use holdfast_lab::units::{self, Cache, Finished, Id, Selection, Shard, Units, Work};

use crate::Done;
use crate::args::{ResultFormat, RunArgs};
use crate::error::Result;
use crate::experiment;
use crate::extended;
use crate::output::{note, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

/// Runs rounds of a plan with a cache.
pub fn execute_adaptively(plan: &Plan, adaptive: Adaptive, args: &RunArgs, folder: &Path) -> Result<Adapted> {
    let cache = Cache::open(folder).map_err(Refused::Unwritable)?;
    let units = Units::new(plan.clone(), &args.experiment, extended::build());
    let bar = Bar::counted("runs");
    let progress = |done: Progress<'_>| bar.step(done);
    let work = work(args.plan.jobs.count(), &units, Some(&cache), &progress)?;
    let mut sum = Finished::default();
    let round = |chosen: &[usize], slots: &Slots| -> Result<(), WriteError> {
        let finished = units::fill(chosen, work, slots)?;
        sum.ran += finished.ran;
        sum.cached += finished.cached;
        Ok(())
    };
    let adapted = bar.while_beating(work.execution.call_off, || adaptive::run(plan, adaptive, round))?;
    say_finished(sum);
    Ok(adapted)
}

/// Runs a plan of the experiment `target` with a cache, as [`experiment::execute`] does without.
pub fn execute(plan: Plan, target: &str, jobs: NonZeroUsize, folder: &Path) -> Result<(Plan, Outcomes)> {
    let cache = Cache::open(folder).map_err(Refused::Unwritable)?;
    let units = Units::new(plan, target, extended::build());
    let bar = Bar::of(&units.plan);
    let progress = |done: Progress<'_>| bar.step(done);
    let work = work(jobs, &units, Some(&cache), &progress)?;
    let (outcomes, finished) = bar.while_beating(work.execution.call_off, || units::outcomes(work))?;
    say_finished(finished);
    Ok((units.plan, outcomes))
}

/// Runs a shard, or the units of a file, and writes their records.
pub fn records(args: &RunArgs) -> Result<Done> {
    let selection = selection(args)?;
    let cache = args
        .units
        .cache
        .as_deref()
        .map(Cache::open)
        .transpose()
        .map_err(Refused::Unwritable)?;
    let output = match &args.results.out {
        None => Output::standard(&selection)?,
        Some(folder) => Output::file(folder, &selection, args.units.shard)?,
    };
    let is_left = |index: &usize| !output.resumed.contains(&selection.units.ids[*index]);
    let chosen: Vec<usize> = selection.chosen.iter().copied().filter(is_left).collect();
    let bar = Bar::counted("units");
    bar.at(0, chosen.len() as u64, selection.header.experiment.clone());
    let progress = |done: Progress<'_>| bar.step(done);
    let work = work(args.plan.jobs.count(), &selection.units, cache.as_ref(), &progress)?;
    let failures = Mutex::new(0_usize);
    let finished = bar.while_beating(work.execution.call_off, || {
        units::run(&chosen, work, &|_, record| {
            *failures.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(record.failure.is_some());
            output.line(&record.line())
        })
    })?;
    say_finished(finished);
    if let Some(path) = &output.path {
        note!("records: {}", path.display());
    }
    if finished.left > 0 {
        say!(
            "incomplete: interrupted before {} units were done; the same command resumes",
            finished.left
        );
        return Ok(Done::Interrupted);
    }
    match failures.into_inner().unwrap_or_else(PoisonError::into_inner) {
        0 => Ok(Done::Whole),
        count => {
            say!("error: {count} units failed; `holdfast merge` says which and how to replay them");
            Ok(Done::Failed)
        }
    }
}

/// Returns the units that the user chose.
fn selection(args: &RunArgs) -> Result<Selection> {
    if args.check_determinism {
        return Err(Refused::misplaced("--check-determinism", "a run of all units without --cache").into());
    }
    if args.adaptive.until_ci.is_some() {
        return Err(Refused::misplaced("--until-ci", "a run of all units, also with --cache").into());
    }
    if args.results.format != ResultFormat::Table {
        return Err(Refused::instead(
            "--format",
            "it only for results: units give records, one line of JSON each",
        )
        .into());
    }
    let shard = args.units.shard;
    let Some(file) = &args.units.units else {
        let plan = experiment::plan(&args.experiment, &args.plan.options())?;
        return Ok(Selection::new(
            Units::new(plan, &args.experiment, extended::build()),
            shard,
        ));
    };
    if args.plan.options() != holdfast_lab::options::Options::default() {
        return Err(Refused::misplaced(
            "an option that changes the experiment",
            "an experiment: --units has its own",
        )
        .into());
    }
    Ok(units::load(file, extended::build(), shard)?)
}

/// Where records are written, each as soon as its unit is done.
struct Output {
    sink: Mutex<Box<dyn Write + Send>>,
    /// The file, if it is no standard output.
    path: Option<PathBuf>,
    /// The units whose records were in the file before.
    resumed: HashSet<Id>,
}

impl Output {
    /// Writes the plan to standard output, where records follow.
    fn standard(selection: &Selection) -> Result<Output> {
        let output = Output {
            sink: Mutex::new(Box::new(io::stdout())),
            path: None,
            resumed: HashSet::new(),
        };
        output.line(&selection.header.line())?;
        Ok(output)
    }

    /// Opens the file of these units in `folder`. Records that an interrupted command left there are kept.
    fn file(folder: &Path, selection: &Selection, shard: Option<Shard>) -> Result<Output> {
        let part = match shard {
            Some(Shard { number, count }) => format!("{number}-of-{count}"),
            None => format!("units-{}", selection.digest()),
        };
        let path = folder.join(format!("{}.{part}.records.jsonl", selection.header.experiment));
        let resumed = units::resume(&path, &selection.header).map_err(Refused::Unwritable)?;
        let resumed = resumed.map_err(Problems::from)?;
        resumed.damaged.iter().for_each(damaged);
        if !resumed.ids.is_empty() {
            note!("resumed: {} has {} records", path.display(), resumed.ids.len());
        }
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(WriteError::of(&path)).map_err(Refused::Unwritable)?;
        Ok(Output {
            sink: Mutex::new(Box::new(file)),
            path: Some(path),
            resumed: resumed.ids,
        })
    }

    /// Writes a line at once, so that a killed process loses only the unit under way.
    fn line(&self, line: &str) -> Result<(), WriteError> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let written = sink.write_all(line.as_bytes()).and_then(|()| sink.flush());
        written.map_err(WriteError::of(
            self.path.as_deref().unwrap_or(Path::new("standard output")),
        ))
    }
}

/// Returns what runs `units` in virtual time.
fn work<'w>(
    jobs: NonZeroUsize,
    units: &'w Units,
    cache: Option<&'w Cache>,
    progress: &'w (dyn Fn(Progress<'_>) + Sync),
) -> Result<Work<'w>> {
    Ok(Work {
        units,
        cache,
        execution: Execution {
            runner: &run::simulate,
            jobs,
            call_off: signal::call_off()?,
            progress,
        },
        damaged: &damaged,
    })
}

/// Reports a damaged record.
fn damaged(problem: &Problem) {
    say!("remark: {problem}; its unit is run again");
}

fn say_finished(finished: Finished) {
    if finished.cached > 0 {
        note!("{} units run, {} from the cache", finished.ran, finished.cached);
    }
}
