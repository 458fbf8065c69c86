//! What `holdfast validate threads` and `holdfast validate kvm` share: predictions compared with measurements on this
//! machine.
//!
//! Each row is shown on standard error when it is complete. With `--out` the file has it then, too, and a comparison
//! with stock Linux guests that finds an incomplete file continues it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdfast_lab::file;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::run::Failure;
use holdfast_real_host::calibrate::{Calibration, Host};
use holdfast_real_host::machine::Machine;
use holdfast_real_host::validate::judge::{GOAL, Judgment, Row, judge};
use holdfast_real_host::validate::{LockKind, Session, Settings};
use serde::{Deserialize, Serialize};

use crate::Done;
use crate::args::{ContendedArgs, Format, given};
use crate::commands::real_host::{calibrate, worker};
use crate::error::Result;
use crate::output::{self, dash, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

/// Function that measures and predicts.
pub trait Compare: FnOnce(&Settings, &mut Session<'_>) -> Result<(), Failure> + Send + 'static {}

impl<F: FnOnce(&Settings, &mut Session<'_>) -> Result<(), Failure> + Send + 'static> Compare for F {}

/// Result of the comparison, schema `holdfast.reality/1`.
#[derive(Clone, Serialize)]
struct Report {
    schema: &'static str,
    against: &'static str,
    machine: Machine,
    host: Host,
    calibration: Option<Calibration>,
    profile: String,
    /// Release of the stock Linux in the guests.
    guest: Option<String>,
    seconds: f64,
    complete: bool,
    #[serde(flatten)]
    judgment: Judgment,
}

/// What a comparison that continues an earlier one needs of its file.
#[derive(Deserialize)]
struct Earlier {
    schema: String,
    machine: Machine,
    guest: Option<String>,
    complete: bool,
    rows: Vec<Row>,
}

const SCHEMA: &str = "holdfast.reality/1";

impl Earlier {
    /// Returns the rows of the file at `path` if it has an incomplete comparison with guests of `kernel` on this
    /// machine.
    fn rows(path: Option<&PathBuf>, kernel: &str) -> Vec<Row> {
        let text = path.and_then(|path| std::fs::read(path).ok());
        let Some(Ok(earlier)) = text.map(|text| serde_json::from_slice::<Earlier>(&text)) else {
            return Vec::new();
        };
        let here = Machine::here();
        let is_here = earlier.machine.cpu == here.cpu && earlier.machine.kernel == here.kernel;
        match earlier.schema == SCHEMA && !earlier.complete && is_here && earlier.guest.as_deref() == Some(kernel) {
            true => earlier.rows,
            false => Vec::new(),
        }
    }
}

/// What `validate threads` and `validate kvm` compare.
pub struct Comparison {
    /// What is measured, as the file's name and the report have it.
    pub against: &'static str,
    /// Whether guests are measured, not threads.
    pub in_guests: bool,
    /// Release of the stock Linux in the guests.
    pub guest: Option<String>,
    /// What is measured in particular. The arguments common to all comparisons refine it.
    pub settings: Settings,
}

impl Comparison {
    /// Returns the file that `args` ask for.
    fn path(args: &ContendedArgs, against: &str) -> Option<PathBuf> {
        let folder = args.out.as_ref();
        folder.map(|folder| file::placed(folder, Path::new(&format!("reality-{against}.json"))))
    }

    /// Refuses, before anything is measured, a file that cannot be written.
    pub fn check(args: &ContendedArgs, against: &str) -> Result<(), Refused> {
        output::check(Comparison::path(args, against).as_deref())
    }

    /// Calibrates, compares, and shows both. `compare` measures and predicts.
    pub fn run(mut self, args: &ContendedArgs, compare: impl Compare) -> Result<Done> {
        let begun = Instant::now();
        let path = Comparison::path(args, self.against);
        output::check(path.as_deref())?;
        self.settings.rounds = args.seeds.unwrap_or(self.settings.rounds);
        given(&mut self.settings.contenders, &args.contenders);
        if let Some(kernel) = &self.guest {
            self.settings.measured = Earlier::rows(path.as_ref(), kernel);
        }
        let stated = args.profile.as_deref().map(calibrate::profile).transpose()?;
        let base = calibrate::profile(holdfast_lab::shipped::GENERIC_MACHINE)?;
        let calibrated = holdfast_real_host::calibrate::Settings {
            guests: self.in_guests,
            ..holdfast_real_host::calibrate::Settings::default()
        };
        let calibration = match stated {
            Some(_) => None,
            None => match calibrate::run(&calibrated, &base)? {
                None => return Ok(Done::Interrupted),
                found => found,
            },
        };
        let host = calibration
            .as_ref()
            .map_or_else(Host::here, |calibration| calibration.host.clone());
        let profile = stated
            .as_ref()
            .or(calibration.as_ref().map(|calibration| &calibration.profile));
        let profile = profile.unwrap_or(&base).clone();
        let report = Report {
            schema: SCHEMA,
            against: self.against,
            machine: Machine::here(),
            host: host.clone(),
            profile: profile.name.clone(),
            calibration,
            guest: self.guest,
            seconds: 0.0,
            complete: false,
            judgment: judge(Vec::new()),
        };
        let (part, file) = (report.clone(), path.clone());
        let (rows, failure) = rows(compare, self.settings, profile, host, move |rows| {
            let part = Report {
                seconds: begun.elapsed().as_secs_f64(),
                judgment: judge(rows),
                ..part.clone()
            };
            // If it cannot be written, the last attempt reports it.
            let _ = file.as_ref().map(|file| write(&part, file));
        })?;
        let report = Report {
            seconds: begun.elapsed().as_secs_f64(),
            complete: worker::check(signal::call_off()?).is_continue(),
            judgment: judge(rows),
            ..report
        };
        finish(&report, path.as_deref(), failure, args.format)
    }
}

/// Writes and shows the whole report.
fn finish(report: &Report, path: Option<&Path>, failure: Option<Failure>, format: Format) -> Result<Done> {
    let judgment = &report.judgment;
    let written = path.map_or(Ok(()), |path| write(report, path));
    if let (Ok(()), Some(path)) = (&written, path) {
        say!("{}", path.display());
    }
    match format {
        Format::Json => output::json(report)?,
        Format::Table => {
            if let Some(calibration) = &report.calibration {
                calibrate::show(calibration)?;
                output::line("")?;
            }
            show(judgment)?;
        }
    }
    warn(&judgment.rows);
    written?;
    if !report.complete {
        say!(
            "incomplete: interrupted before all was compared: {} rows are kept",
            judgment.rows.len()
        );
        return Ok(Done::Interrupted);
    }
    if let Some(failure) = &failure {
        say!("error: a measurement failed, and repeating it does not help: {failure}");
    }
    let failed = failure.is_some() || judgment.rows.iter().any(|row| row.predicted.is_none());
    Ok(if failed { Done::Failed } else { Done::Whole })
}

/// Reports the measurements that failed and were repeated.
fn warn(rows: &[Row]) {
    let retries: u32 = rows.iter().map(|row| row.retries).sum();
    if retries > 0 {
        say!("warning: {retries} measurements failed and were repeated:");
    }
    for row in rows {
        for failure in &row.lost {
            let first = failure.lines().next().unwrap_or_default();
            say!("  {}, {} ns, {}: {first}", row.threads, row.section_ns, row.lock);
        }
    }
}

fn write(report: &Report, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    Ok(file::write(path, text.as_bytes())?)
}

/// Returns the complete rows, and the failure that prevented the others, if any. `written` gets the rows so far.
fn rows(
    compare: impl Compare,
    settings: Settings,
    profile: MachineProfile,
    host: Host,
    written: impl Fn(Vec<Row>) + Send + 'static,
) -> Result<(Vec<Row>, Option<Failure>)> {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let bar = Arc::new(Bar::counted("steps"));
    let (kept, shown) = (Arc::clone(&rows), Arc::clone(&bar));
    let outcome = worker::run(move |call_off| {
        let done = AtomicU64::new(0);
        let step = &mut |what: &str, total: u64| {
            shown.at(done.fetch_add(1, Ordering::Relaxed), total, what);
            worker::check(call_off)
        };
        let keep = &mut |row: Row| {
            say!("{}", line(&row));
            let mut rows = kept.lock().unwrap_or_else(PoisonError::into_inner);
            rows.push(row);
            written(rows.clone());
        };
        let mut session = Session {
            profile: &profile,
            host: &host,
            call_off,
            step,
            keep,
        };
        compare(&settings, &mut session)
    })?;
    bar.finish();
    let rows = rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((rows, outcome.and_then(Result::err)))
}

/// Returns `row` as one line.
fn line(row: &Row) -> String {
    let (least, most) = row.range().unwrap_or_default();
    format!(
        "{} threads or vCPUs, {}{} ns, {}: {} measured ({} - {}), {} predicted",
        row.threads,
        row.path.as_deref().map_or_else(String::new, |path| format!("{path}, ")),
        row.section_ns,
        row.lock,
        output::number(row.measured),
        output::number(least),
        output::number(most),
        output::optional(row.predicted)
    )
}

/// Returns the locks with these names.
pub fn locks(names: &[String]) -> Result<Vec<LockKind>, Refused> {
    names.iter().map(|name| lock(name)).collect()
}

fn lock(name: &str) -> Result<LockKind, Refused> {
    name.parse()
        .map_err(|_| Refused::among(name, LockKind::ALL.iter().map(|kind| kind.name())))
}

fn show(judgment: &Judgment) -> Result<()> {
    let header =
        "threads or vCPUs | section, ns | path | lock | measured, 1/s | range | predicted, 1/s | ratio | log ratio";
    let mut table = output::table(header.split(" | "), 4);
    for row in &judgment.rows {
        let range = row.range().unwrap_or_default();
        table.add_row([
            row.threads.to_string(),
            row.section_ns.to_string(),
            row.path.clone().unwrap_or_else(|| "-".to_owned()),
            row.lock.clone(),
            output::number(row.measured),
            format!("{} - {}", output::number(range.0), output::number(range.1)),
            output::optional(row.predicted),
            output::optional(row.predicted.map(|predicted| predicted / row.measured)),
            dash(row.log_ratio(), |log| format!("{log:+.2}")),
        ]);
    }
    output::line(&table.to_string())?;
    let header = "threads or vCPUs | section, ns | path | median |log ratio| | pairs that differ | in the right order";
    let mut table = output::table(header.split(" | "), 3);
    for topology in &judgment.topologies {
        table.add_row([
            topology.threads.to_string(),
            topology.section_ns.to_string(),
            topology.path.clone().unwrap_or_else(|| "-".to_owned()),
            dash(topology.median_log_ratio, |log| format!("{log:.2}")),
            topology.pairs.to_string(),
            topology.pairs_right.to_string(),
        ]);
    }
    output::line(&format!("\n{table}"))?;
    let median = dash(judgment.median_log_ratio, |log| format!("{log:.2}"));
    let verdict = if judgment.goal_reached { "reached" } else { "MISSED" };
    output::line(&format!(
        "\nmedian |log ratio| over all rows: {median}; the goal of ln {GOAL} = {:.2} is {verdict}",
        GOAL.ln()
    ))
}
