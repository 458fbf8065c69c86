//! `holdfast validate linux-sched`: the host scheduler compared with stock Linux kernels.

use std::path::Path;

use holdfast_lab::file;
use holdfast_real_host::scheduler::judge::{
    Judgment, KERNELS, Kernel, Record, SHARE_POINTS, SLICE, WAKE, WAKE_US, judge, to_json,
};
use holdfast_real_host::scheduler::measure::{MeasureError, measure};
use holdfast_real_host::scheduler::{GroupFigures, Scenario, scenario};
use serde::Serialize;

use crate::Done;
use crate::args::{Format, LinuxSchedArgs};
use crate::error::Result;
use crate::output::{self, say};
use crate::refused::Refused;

/// Result of the comparison, schema `holdfast.scheduler/1`.
#[derive(Serialize)]
struct Report<'j> {
    schema: &'static str,
    kernels: &'j [Judgment],
}

/// Plays the scenarios under the host scheduler, and compares with recorded or new figures of real kernels.
pub fn validate(args: &LinuxSchedArgs) -> Result<Done> {
    let scenarios = chosen(&args.scenarios)?;
    let mut done = Done::Whole;
    let mut judgments = Vec::new();
    for (kernel, record) in records(args, &scenarios, &mut done)? {
        judgments.push(judge(&record, kernel.scheduler, &scenarios)?);
    }
    match args.format {
        Format::Json => output::json(&Report {
            schema: "holdfast.scheduler/1",
            kernels: &judgments,
        })?,
        Format::Table => judgments.iter().try_for_each(show)?,
    }
    Ok(done)
}

/// Returns the shipped scenarios with these names, or all.
fn chosen(names: &[String]) -> Result<Vec<Scenario>, Refused> {
    let all = scenario::shipped();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|scenario| scenario.name == *name).cloned();
        found.ok_or_else(|| Refused::among(name, all.iter().map(|scenario| scenario.name.as_str())))
    };
    names.iter().map(find).collect()
}

/// Returns the kernels with their figures: those recorded, or new ones.
fn records(args: &LinuxSchedArgs, scenarios: &[Scenario], done: &mut Done) -> Result<Vec<(Kernel, Record)>> {
    if args.measure.is_empty() {
        return Ok(KERNELS.iter().map(|kernel| (*kernel, kernel.record())).collect());
    }
    let mut kernels = Vec::new();
    for series in &args.measure {
        let found = KERNELS.iter().find(|kernel| kernel.version == *series);
        kernels.push(*found.ok_or_else(|| Refused::among(series, KERNELS.iter().map(|kernel| kernel.version)))?);
    }
    let placed = |kernel: &Kernel| {
        let name = format!("linux-{}.json", kernel.version);
        args.out.as_deref().map(|place| file::placed(place, Path::new(&name)))
    };
    if let (Some(place), Some(file)) = (args.out.as_deref(), kernels.first().and_then(placed)) {
        output::check_folder(place, &file, kernels.len())?;
    }
    let mut records = Vec::new();
    for kernel in kernels {
        let path = placed(&kernel);
        output::check(path.as_deref())?;
        match measure(kernel.version, scenarios, &mut |what| say!("measuring {what}")) {
            Ok(record) => {
                keep(path.as_deref(), &record)?;
                records.push((kernel, record));
            }
            Err(error @ MeasureError::Skipped(_)) => say!("Linux {}: {error}", kernel.version),
            Err(error) => {
                say!("error: Linux {}: {error}", kernel.version);
                *done = Done::Failed;
            }
        }
    }
    Ok(records)
}

fn keep(path: Option<&Path>, record: &Record) -> Result<()> {
    if let Some(path) = path {
        file::write(path, to_json(record)?.as_bytes())?;
        say!("{}", path.display());
    }
    Ok(())
}

fn show(judgment: &Judgment) -> Result<()> {
    output::line(&format!(
        "Linux {} ({}), compared with {}\n",
        judgment.kernel, judgment.release, judgment.scheduler
    ))?;
    let header = ["scenario", "threads", "of"];
    let mut table = output::table(header.into_iter().chain(COLUMNS).chain(["outside the goal"]), 3);
    for row in &judgment.rows {
        let outside: Vec<&str> = row
            .within
            .iter()
            .filter(|(_, within)| !**within)
            .map(|(name, _)| *name)
            .collect();
        for (of, figures, outside) in [
            ("linux", &row.linux, String::new()),
            ("holdfast", &row.holdfast, outside.join(", ")),
        ] {
            let mut cells = vec![row.scenario.clone(), figures.name.clone(), of.to_owned()];
            cells.extend(cells_of(figures));
            cells.push(outside);
            table.add_row(cells);
        }
    }
    output::line(&table.to_string())?;
    let count = |name| {
        let (within, judged) = judgment.count(name);
        format!("{within} of {judged}")
    };
    output::line(&format!(
        "\nwithin the goals: median share (within {SHARE_POINTS} points) {}, median slice ({:.0} %) {}, \
         wake to run ({:.0} % or {WAKE_US} us) p50 {}, p99 {}",
        count("share"),
        100.0 * SLICE,
        count("slice"),
        100.0 * WAKE,
        count("wake p50"),
        count("wake p99"),
    ))?;
    if !judgment.missing.is_empty() {
        output::line(&format!("no figures of the kernel: {}", judgment.missing.join(", ")))?;
    }
    output::line("")
}

/// Headers of the figures.
const COLUMNS: [&str; 5] = [
    "share, %: min, median, max",
    "slice, ms: p10, p50, p90",
    "wake to run, us: p50, p99",
    "moves, 1/s",
    "ends, %: slice, wakeup, sleep",
];

fn cells_of(figures: &GroupFigures) -> [String; 5] {
    let [least, median, most] = figures.share;
    let [p10, p50, p90] = figures.slice_ms;
    let [slice, wakeup, sleep] = figures.ends;
    [
        format!("{least:.1} {median:.1} {most:.1}"),
        format!("{p10:.2} {p50:.2} {p90:.2}"),
        figures
            .wake_us
            .map_or("-".to_owned(), |[p50, p99]| format!("{p50:.0} {p99:.0}")),
        format!("{:.0}", figures.migrations),
        format!("{slice:.0} {wakeup:.0} {sleep:.0}"),
    ]
}
