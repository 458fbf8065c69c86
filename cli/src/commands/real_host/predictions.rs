//! `holdfast validate --against threads|kvm`: predictions compared with measurements on this machine.
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
use holdfast_real_host::calibrate::{self, Calibration, Host};
use holdfast_real_host::linux::{KernelPath, Linux};
use holdfast_real_host::machine::Machine;
use holdfast_real_host::validate::judge::{GOAL, Judgment, Row, judge};
use holdfast_real_host::validate::{LockKind, Settings, Spinlock, guests, linux, threads};
use serde::{Deserialize, Serialize};

use crate::Done;
use crate::args::{Against, Format, ValidateArgs};
use crate::error::Result;
use crate::output::{self, dash, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

use super::{given, worker};

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

/// Runs the locks on host threads, or in guests, and in the simulator.
pub fn validate(args: &ValidateArgs) -> Result<Done> {
    let begun = Instant::now();
    let on_kvm = args.against == Against::Kvm;
    let against = match (on_kvm, &args.linux) {
        (true, Some(_)) => "kvm-linux",
        (true, None) => "kvm",
        _ => "threads",
    };
    let path = args.out.as_ref();
    let path = path.map(|folder| folder.join(format!("reality-{against}.json")));
    output::check(path.as_deref())?;
    if on_kvm {
        super::kvm::usable("validate --against kvm")?;
    }
    let stock = args.linux.as_ref();
    let stock = stock.map(|file| super::kvm::kernel(file.as_deref(), KernelPath::Dup, "validate --against kvm"));
    let stock = stock.transpose()?;
    let settings = settings(args, stock.as_ref(), path.as_ref())?;
    let stated = args.profile.as_deref().map(super::calibrate::profile).transpose()?;
    let base = super::calibrate::profile(holdfast_lab::shipped::DEFAULT_MACHINE)?;
    let calibrated = calibrate::Settings {
        guests: on_kvm,
        ..calibrate::Settings::default()
    };
    let calibration = match stated {
        Some(_) => None,
        None => match super::calibrate::run(&calibrated, &base)? {
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
        against,
        machine: Machine::here(),
        host: host.clone(),
        profile: profile.name.clone(),
        calibration,
        guest: stock.as_ref().map(|stock| stock.kernel.release()),
        seconds: 0.0,
        complete: false,
        judgment: judge(Vec::new()),
    };
    let (part, file) = (report.clone(), path.clone());
    let (rows, failure) = compare(args, settings, stock, profile, host, move |rows| {
        let part = Report {
            seconds: begun.elapsed().as_secs_f64(),
            judgment: judge(rows),
            ..part.clone()
        };
        // If it cannot be written, the last attempt reports it.
        let _ = file.as_ref().map(|file| write(&part, file));
    })?;
    let complete = worker::check(signal::call_off()?).is_continue();
    let report = Report {
        seconds: begun.elapsed().as_secs_f64(),
        complete,
        judgment: judge(rows),
        ..report
    };
    let judgment = &report.judgment;
    let written = path.map(|path| write(&report, &path).map(|()| path));
    let written = written.transpose();
    if let Ok(Some(path)) = &written {
        say!("{}", path.display());
    }
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => {
            if let Some(calibration) = &report.calibration {
                super::calibrate::show(calibration)?;
                output::line("")?;
            }
            show(judgment)?;
        }
    }
    warn(&judgment.rows);
    written?;
    if !complete {
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

/// Returns the settings that `args` ask for. `path` may have an earlier comparison.
fn settings(args: &ValidateArgs, stock: Option<&Linux>, path: Option<&PathBuf>) -> Result<Settings> {
    let mut settings = match (args.against == Against::Kvm, stock) {
        (true, Some(_)) => Settings::stock(),
        (true, None) => Settings::guests(),
        _ => Settings::threads(),
    };
    settings.rounds = args.seeds.unwrap_or(settings.rounds);
    if let Some(stock) = stock {
        let locks: Result<Vec<_>, _> = args.locks.iter().map(|name| spinlock(name)).collect();
        given(&mut settings.spinlocks, &locks?);
        settings.measured = Earlier::rows(path, &stock.kernel.release());
    } else {
        let locks: Result<Vec<_>, _> = args.locks.iter().map(|name| lock(name)).collect();
        given(&mut settings.locks, &locks?);
    }
    given(&mut settings.contenders, &args.contenders);
    given(&mut settings.sections_ns, &args.sections);
    Ok(settings)
}

/// Returns the complete rows, and the failure that prevented the others, if any. `written` gets the rows so far.
fn compare(
    args: &ValidateArgs,
    settings: Settings,
    stock: Option<Linux>,
    profile: MachineProfile,
    host: Host,
    written: impl Fn(Vec<Row>) + Send + 'static,
) -> Result<(Vec<Row>, Option<Failure>)> {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let bar = Arc::new(Bar::counted("steps"));
    let (kept, shown) = (Arc::clone(&rows), Arc::clone(&bar));
    let on_kvm = args.against == Against::Kvm;
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
        if let Some(stock) = &stock {
            return linux::compare(&settings, stock, &profile, &host, call_off, step, keep);
        }
        if on_kvm {
            return guests::compare(&settings, &profile, &host, call_off, step, keep);
        }
        threads::compare(&settings, &profile, &host, call_off, step, keep);
        Ok(())
    })?;
    bar.finish();
    let rows = rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((rows, outcome.and_then(Result::err)))
}

fn spinlock(name: &str) -> Result<Spinlock, Refused> {
    let all = Spinlock::ALL.iter().map(|spinlock| spinlock.name());
    Spinlock::named(name).ok_or_else(|| Refused::among(name, all))
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
