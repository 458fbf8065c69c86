//! `holdfast status`.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use holdfast_lab::units::{self, Cache, Status};

use crate::Done;
use crate::args::{Format, StatusArgs};
use crate::error::{Error, Result};
use crate::output::{self, dash};
use crate::refused::Refused;

/// Shows the progress of submitted plans.
pub fn status(args: &StatusArgs) -> Result<Done> {
    let cache = Cache::at(&args.folder.join("cache"));
    let now = SystemTime::now();
    let all: Vec<Status> = plans(args)?
        .iter()
        .map(|path| units::status(path, &cache, now))
        .collect::<Result<_, _>>()?;
    if args.format == Format::Json {
        output::json(&all)?;
        return Ok(Done::Whole);
    }
    let heads = "experiment | units | done | failed | at the same time | left, CPU time | left";
    let mut table = output::table(heads.split(" | "), 1);
    for it in &all {
        table.add_row([
            it.experiment.clone(),
            it.units.to_string(),
            it.done.to_string(),
            it.failed.to_string(),
            dash(it.at_once, |count| format!("{count:.1}")),
            dash(it.left_cpu_s, time),
            dash(it.left_s, time),
        ]);
    }
    output::line(&table.to_string())?;
    Ok(Done::Whole)
}

/// Returns the files of plans in the folder, in the order of their names.
fn plans(args: &StatusArgs) -> Result<Vec<PathBuf>> {
    let shown = args.folder.display();
    let entries = fs::read_dir(&args.folder).map_err(|error| Refused::Unreadable(shown.to_string(), error))?;
    let mut plans = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::of(format!("cannot read {shown}")))?.path();
        if path.to_string_lossy().ends_with(".plan.jsonl") {
            plans.push(path);
        }
    }
    plans.sort();
    if plans.is_empty() {
        return Err(Refused::instead(format!("no plan in {shown}"), "the --out of `holdfast submit`").into());
    }
    Ok(plans)
}

/// Returns a time as people say it.
fn time(seconds: f64) -> String {
    match seconds {
        it if it < 120.0 => format!("{it:.0} s"),
        it if it < 7200.0 => format!("{:.0} min", it / 60.0),
        it => format!("{:.1} h", it / 3600.0),
    }
}
