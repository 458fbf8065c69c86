//! `holdfast trace`.

use std::path::{Path, PathBuf};

use holdfast_lab::file::{self, WriteError};
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::replay::{self, ReplayError};
use holdfast_lab::rerun;
use holdfast_lab::run::Failure;
use holdfast_lab::trace::{self, Reason, TraceError, Traced, Wanted, milliseconds};
use serde::Serialize;

use crate::Done;
use crate::args::{Format, TraceArgs, VERSION};
use crate::error::{Error, Result};
use crate::experiment;
use crate::output::{self, note, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

/// Schema of the description of a recording.
const SCHEMA: &str = "holdfast.trace/1";

/// Description of a recording.
#[derive(Debug, Serialize)]
struct Said<'t> {
    schema: &'static str,
    file: String,
    experiment: &'t str,
    case: &'t str,
    variant: &'t str,
    seed: u64,
    scale: f64,
    version: &'static str,
    /// Nanoseconds of virtual time since power-on.
    from_ns: u64,
    to_ns: u64,
    run_ends_ns: u64,
    truncated: bool,
    bytes: usize,
    /// Hash of the history of the whole run; null if it failed.
    history_hash: Option<String>,
    failure: Option<String>,
}

/// Records one run as a timeline.
pub fn trace(args: &TraceArgs) -> Result<Done> {
    let options = Options {
        seeds: Some(1),
        first_seed: args.seed,
        scale: args.changes.scale,
        set: args.changes.set.clone(),
        cases: args.case.iter().cloned().collect(),
        variants: args.variant.iter().cloned().collect(),
        ..Options::default()
    };
    let plan = experiment::plan(&args.experiment, &options)?;
    if let Some(folder) = &args.recording {
        return recording(&plan, folder);
    }
    let wanted = Wanted {
        from: args.from.clone(),
        span: args.span.clone(),
    };
    let name = file_name(&plan);
    let path = match &args.out {
        Some(place) => file::placed(place, &name),
        None => name,
    };
    output::check(Some(&path))?;
    output::check(args.svg.as_deref())?;
    let (call_off, bar) = (signal::call_off()?, Bar::uncounted("recording"));
    bar.at(0, 0, format!("{} / {}", plan.cells[0].case, plan.cells[0].variant));
    let traced = match bar.while_beating(call_off, || trace::trace(&plan, &wanted, call_off)) {
        Err(TraceError::Run(Failure::CalledOff)) => {
            say!("incomplete: interrupted before the run's end; nothing is written");
            return Ok(Done::Interrupted);
        }
        traced => traced?,
    };
    let bytes = trace::encode(&traced.timeline);
    file::write(&path, &bytes)?;
    if let Some(path) = &args.svg {
        let title = format!(
            "{}, {}, {}",
            plan.experiment.name, plan.cells[0].case, plan.cells[0].variant
        );
        file::write(path, trace::svg(&title, &traced.timeline).as_bytes())?;
        note!("drawing: {}", path.display());
    }
    let said = said(&plan, &traced, path.display().to_string(), bytes.len());
    explain(&said, &plan, &traced);
    if args.format == Format::Json {
        output::json(&said)?;
    }
    if let Some(failure) = &said.failure {
        say!("error: the run failed where the recording ends: {failure}");
        let replay = rerun::one(&plan, &args.experiment, &plan.cells[0], args.seed);
        say!("replay with version {VERSION}: {replay}");
        return Ok(Done::Failed);
    }
    Ok(Done::Whole)
}

/// Writes what a recording of the simulated host would be to the new folder `folder`.
fn recording(plan: &Plan, folder: &Path) -> Result<Done> {
    if folder.exists() {
        return Err(Refused::instead(folder.display().to_string(), "a folder that does not exist yet").into());
    }
    let mut config = plan.cells[0].config.clone();
    config.seed = plan.seeds[0];
    let (call_off, bar) = (signal::call_off()?, Bar::uncounted("recording"));
    let recorded = bar.while_beating(call_off, || replay::recording(&config, call_off));
    drop(bar);
    let (outcome, files) = match recorded {
        Err(ReplayError::Run(Failure::CalledOff)) => {
            say!("incomplete: interrupted before the run's end; nothing is written");
            return Ok(Done::Interrupted);
        }
        Err(error) => return Err(Error::Failed(error.to_string())),
        Ok(recorded) => recorded,
    };
    for (name, text) in &files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(WriteError::of(parent))?;
        }
        file::write(&path, text.as_bytes())?;
    }
    note!(
        "recording of {}: {}; see `holdfast import {}`",
        milliseconds(outcome.end_ns),
        folder.display(),
        folder.display()
    );
    Ok(Done::Whole)
}

fn said<'t>(plan: &'t Plan, traced: &Traced, file: String, bytes: usize) -> Said<'t> {
    let (cell, timeline) = (&plan.cells[0], &traced.timeline);
    Said {
        schema: SCHEMA,
        file,
        experiment: &plan.experiment.name,
        case: &cell.case,
        variant: &cell.variant,
        seed: plan.seeds[0],
        scale: plan.scale,
        version: VERSION,
        from_ns: timeline.from.nanos(),
        to_ns: timeline.to.nanos(),
        run_ends_ns: timeline.end.nanos(),
        truncated: timeline.truncated,
        bytes,
        history_hash: traced
            .outcome
            .as_ref()
            .ok()
            .map(|outcome| format!("{:016x}", outcome.history_hash)),
        failure: traced.outcome.as_ref().err().map(ToString::to_string),
    }
}

/// Reports what was recorded and how to open it.
fn explain(said: &Said<'_>, plan: &Plan, traced: &Traced) {
    let whose = match traced.reason {
        Reason::Convoy(vm) | Reason::Interval(vm) => format!(" (guest {})", traced.timeline.vms[vm]),
        _ => String::new(),
    };
    note!(
        "{}: case {}, variant {}, seed {}, scale {}",
        said.experiment,
        said.case,
        said.variant,
        said.seed,
        said.scale
    );
    if plan.cells.len() > 1 {
        note!(
            "(the first of {} cells; choose another by --case and --variant)",
            plan.cells.len()
        );
    }
    note!(
        "recorded from {} to {}, {}{whose}; the run ends at {}",
        milliseconds(said.from_ns),
        milliseconds(said.to_ns),
        traced.reason,
        milliseconds(said.run_ends_ns)
    );
    if said.truncated {
        note!("the recording ends early: more happened than a browser can show (shorter: --for)");
    }
    note!(
        "timeline: {} ({:.1} MB); open https://ui.perfetto.dev and drop the file there: it stays on this machine",
        said.file,
        said.bytes as f64 / 1e6
    );
}

/// Returns a file name that every file system accepts.
fn file_name(plan: &Plan) -> PathBuf {
    let cell = &plan.cells[0];
    let name = format!(
        "{}-{}-{}-{}",
        plan.experiment.name, cell.case, cell.variant, plan.seeds[0]
    );
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.=".contains(c) {
            c
        } else {
            '_'
        }
    };
    let mut name: String = name.chars().map(plain).take(200).collect();
    name.push_str(".pftrace");
    PathBuf::from(name)
}
