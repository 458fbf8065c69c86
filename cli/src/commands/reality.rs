//! `holdfast validate --against threads|kvm`: predicted against measured on this very machine.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_lab::bench::Machine;
use holdfast_lab::calibrate::{self, Calibration, Host};
use holdfast_lab::file;
use holdfast_lab::reality::judge::{GOAL, Judgement, judge};
use holdfast_lab::reality::{LockKind, guests, threads};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Done;
use crate::args::{Against, Format, ValidateArgs};
use crate::experiment::Unknown;
use crate::output;
use crate::signal;

/// What the check says, schema `holdfast.reality/1`.
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
    judgement: &'r Judgement,
}

/// Runs the locks on host threads, or in guests, and in the simulator.
pub fn check(args: &ValidateArgs) -> anyhow::Result<Done> {
    let begun = Instant::now();
    let on_kvm = args.against == Against::Kvm;
    if on_kvm {
        holdfast_lab::reality::kvm::usable().map_err(anyhow::Error::msg)?;
    }
    let locks = args
        .locks
        .iter()
        .map(|name| lock(name))
        .collect::<Result<Vec<_>, _>>()?;
    let given = args.profile.as_deref().map(super::calibrate::profile).transpose()?;
    let base = super::calibrate::profile(holdfast_lab::shipped::DEFAULT_MACHINE)?;
    let calibration = match given {
        Some(_) => None,
        None => match super::calibrate::run(&calibration_settings(on_kvm), &base)? {
            None => return Ok(Done::Failed),
            found => found,
        },
    };
    let host = calibration
        .as_ref()
        .map_or_else(Host::here, |calibration| calibration.host.clone());
    let profile = given
        .as_ref()
        .or(calibration.as_ref().map(|calibration| &calibration.profile));
    let profile = profile.unwrap_or(&base);
    let call_off = signal::call_off()?;
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed} (about {eta} left)  {msg}");
    bar.set_style(style.expect("a valid template").progress_chars("=> "));
    let mut step = |what: &str, total: u64| {
        bar.set_length(total);
        bar.inc(1);
        bar.set_message(what.to_owned());
        if call_off.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let rows = if on_kvm {
        let mut settings = guests::Settings::default();
        settings.rounds = args.seeds.unwrap_or(settings.rounds);
        narrow(
            args,
            &locks,
            &mut settings.locks,
            &mut settings.vcpus,
            &mut settings.sections_ns,
        );
        guests::compare(&settings, profile, &host, &mut step)?
    } else {
        let mut settings = threads::Settings::default();
        settings.rounds = args.seeds.unwrap_or(settings.rounds);
        narrow(
            args,
            &locks,
            &mut settings.locks,
            &mut settings.threads,
            &mut settings.sections_ns,
        );
        threads::compare(&settings, profile, &host, &mut step)
    };
    bar.finish_and_clear();
    let complete = !call_off.load(Ordering::Relaxed);
    let judgement = judge(rows);
    let report = Report {
        schema: "holdfast.reality/1",
        against: if on_kvm { "kvm" } else { "threads" },
        machine: Machine::here(),
        host: &host,
        calibration: calibration.as_ref(),
        profile: profile.name.clone(),
        seconds: begun.elapsed().as_secs_f64(),
        complete,
        judgement: &judgement,
    };
    if let Some(folder) = &args.out {
        let path = folder.join(if on_kvm {
            "reality-kvm.json"
        } else {
            "reality-threads.json"
        });
        file::write(&path, serde_json::to_string_pretty(&report)?.as_bytes())?;
        eprintln!("{}", path.display());
    }
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => {
            if let Some(calibration) = &calibration {
                super::calibrate::show(calibration)?;
                output::line("")?;
            }
            show(&judgement)?;
        }
    }
    let retries: u32 = judgement.rows.iter().map(|row| row.retries).sum();
    if retries > 0 {
        eprintln!("warning: {retries} measurements failed and were repeated:");
    }
    for row in &judgement.rows {
        for failure in &row.lost {
            let first = failure.lines().next().unwrap_or_default();
            eprintln!("  {}, {} ns, {}: {first}", row.threads, row.section_ns, row.lock);
        }
    }
    if !complete {
        eprintln!("incomplete: interrupted before all was compared");
    }
    let failed = judgement.rows.iter().any(|row| row.predicted.is_none());
    Ok(if complete && !failed { Done::Whole } else { Done::Failed })
}

fn lock(name: &str) -> Result<LockKind, Unknown> {
    name.parse()
        .map_err(|_| Unknown::among(name, LockKind::ALL.iter().map(|kind| kind.name())))
}

fn calibration_settings(guests: bool) -> calibrate::Settings {
    calibrate::Settings {
        guests,
        ..calibrate::Settings::default()
    }
}

/// Restricts what is compared to what `args` name.
fn narrow(
    args: &ValidateArgs,
    named: &[LockKind],
    locks: &mut Vec<LockKind>,
    contenders: &mut Vec<u32>,
    sections: &mut Vec<u64>,
) {
    if !named.is_empty() {
        *locks = named.to_vec();
    }
    if !args.contenders.is_empty() {
        contenders.clone_from(&args.contenders);
    }
    if !args.sections.is_empty() {
        sections.clone_from(&args.sections);
    }
}

fn show(judgement: &Judgement) -> anyhow::Result<()> {
    let header = [
        "threads or vCPUs",
        "section, ns",
        "lock",
        "measured, 1/s",
        "range",
        "predicted, 1/s",
        "ratio",
        "log ratio",
    ];
    let mut table = output::table(&header, 3);
    for row in &judgement.rows {
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
            row.lock.clone(),
            output::number(row.measured),
            format!("{} - {}", output::number(range.0), output::number(range.1)),
            output::optional(row.predicted),
            output::optional(row.predicted.map(|predicted| predicted / row.measured)),
            row.log_ratio()
                .map_or_else(|| "-".to_owned(), |log| format!("{log:+.2}")),
        ]);
    }
    output::line(&table.to_string())?;
    let mut table = output::table(
        &[
            "threads or vCPUs",
            "section, ns",
            "median |log ratio|",
            "pairs told apart",
            "in the right order",
        ],
        2,
    );
    for topology in &judgement.topologies {
        table.add_row([
            topology.threads.to_string(),
            topology.section_ns.to_string(),
            topology
                .median_log_ratio
                .map_or_else(|| "-".to_owned(), |log| format!("{log:.2}")),
            topology.pairs.to_string(),
            topology.pairs_right.to_string(),
        ]);
    }
    output::line(&format!("\n{table}"))?;
    let median = judgement
        .median_log_ratio
        .map_or_else(|| "-".to_owned(), |log| format!("{log:.2}"));
    let verdict = if judgement.goal_reached { "reached" } else { "MISSED" };
    output::line(&format!(
        "\nmedian |log ratio| over all rows: {median}; the goal of ln {GOAL} = {:.2} is {verdict}",
        GOAL.ln()
    ))
}
