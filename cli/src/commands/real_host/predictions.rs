//! `holdfast validate --against threads|kvm`: predictions compared with measurements on this machine.

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
use holdfast_real_host::validate::{LockKind, Settings, guests, linux, threads};
use serde::Serialize;

use crate::Done;
use crate::args::{Against, Format, ValidateArgs};
use crate::output::{self, dash, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

use super::{given, worker};

/// Result of the comparison, schema `holdfast.reality/1`.
#[derive(Serialize)]
struct Report<'r> {
    schema: &'static str,
    against: &'static str,
    machine: Machine,
    host: &'r Host,
    calibration: Option<&'r Calibration>,
    profile: String,
    seconds: f64,
    complete: bool,
    #[serde(flatten)]
    judgment: &'r Judgment,
}

/// Runs the locks on host threads, or in guests, and in the simulator.
pub fn validate(args: &ValidateArgs) -> anyhow::Result<Done> {
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
    let locks: Result<Vec<_>, _> = args.locks.iter().map(|name| lock(name)).collect();
    let locks = locks?;
    let stated = args.profile.as_deref().map(super::calibrate::profile).transpose()?;
    let base = super::calibrate::profile(holdfast_lab::shipped::DEFAULT_MACHINE)?;
    let settings = calibrate::Settings {
        guests: on_kvm,
        ..calibrate::Settings::default()
    };
    let calibration = match stated {
        Some(_) => None,
        None => match super::calibrate::run(&settings, &base)? {
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
    let profile = profile.unwrap_or(&base);
    let (rows, failure) = compare(args, stock, &locks, profile, &host)?;
    let complete = worker::check(signal::call_off()?).is_continue();
    let judgment = judge(rows);
    let report = Report {
        schema: "holdfast.reality/1",
        against,
        machine: Machine::here(),
        host: &host,
        calibration: calibration.as_ref(),
        profile: profile.name.clone(),
        seconds: begun.elapsed().as_secs_f64(),
        complete,
        judgment: &judgment,
    };
    let text = serde_json::to_string_pretty(&report)?;
    let written = path.map(|path| file::write(&path, text.as_bytes()).map(|()| path));
    let written = written.transpose();
    if let Ok(Some(path)) = &written {
        say!("{}", path.display());
    }
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => {
            if let Some(calibration) = &calibration {
                super::calibrate::show(calibration)?;
                output::line("")?;
            }
            show(&judgment)?;
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

/// Returns the complete rows, and the failure that prevented the others, if any.
fn compare(
    args: &ValidateArgs,
    stock: Option<Linux>,
    locks: &[LockKind],
    profile: &MachineProfile,
    host: &Host,
) -> anyhow::Result<(Vec<Row>, Option<Failure>)> {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let bar = Arc::new(Bar::counted("steps"));
    let (kept, shown) = (Arc::clone(&rows), Arc::clone(&bar));
    let (profile, host) = (profile.clone(), host.clone());
    let on_kvm = args.against == Against::Kvm;
    let mut settings = match (on_kvm, &stock) {
        (true, Some(_)) => Settings::stock(),
        (true, None) => Settings::guests(),
        _ => Settings::threads(),
    };
    settings.rounds = args.seeds.unwrap_or(settings.rounds);
    given(&mut settings.locks, locks);
    given(&mut settings.contenders, &args.contenders);
    given(&mut settings.sections_ns, &args.sections);
    let outcome = worker::run(move |call_off| {
        let done = AtomicU64::new(0);
        let step = &mut |what: &str, total: u64| {
            shown.at(done.fetch_add(1, Ordering::Relaxed), total, what);
            worker::check(call_off)
        };
        let keep = &mut |row| kept.lock().unwrap_or_else(PoisonError::into_inner).push(row);
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

fn lock(name: &str) -> Result<LockKind, Refused> {
    name.parse()
        .map_err(|_| Refused::among(name, LockKind::ALL.iter().map(|kind| kind.name())))
}

fn show(judgment: &Judgment) -> anyhow::Result<()> {
    let header =
        "threads or vCPUs | section, ns | path | lock | measured, 1/s | range | predicted, 1/s | ratio | log ratio";
    let mut table = output::table(header.split(" | "), 4);
    for row in &judgment.rows {
        let range = row
            .samples
            .iter()
            .copied()
            .fold((f64::INFINITY, 0.0f64), |(low, high), sample| {
                (low.min(sample), high.max(sample))
            });
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
