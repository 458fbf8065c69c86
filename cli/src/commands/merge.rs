//! `holdfast merge`.

use std::path::Path;

use holdfast_lab::collect;
use holdfast_lab::file;
use holdfast_lab::filter::Filter;
use holdfast_lab::results::path_in;
use holdfast_lab::units::{self, Header, Merged, Rules, Unit};

use crate::Done;
use crate::args::MergeArgs;
use crate::commands::run::{say_failures, show};
use crate::error::Result;
use crate::extended;
use crate::output::{self, note, say};

/// Merges the records of units into results.
pub fn merge(args: &MergeArgs) -> Result<Done> {
    let rules = Rules {
        mixed_builds: args.mixed_builds,
        skip_damaged: args.skip_damaged,
    };
    output::check(args.missing.as_deref())?;
    let mut inputs = units::inputs(&args.inputs, rules)?;
    for damaged in inputs.damaged.drain(..) {
        note!("left out: {damaged}");
    }
    let merged = units::merge(inputs, extended::build(), rules)?;
    if merged.duplicates > 0 {
        note!("{} records were there more than once, and agree", merged.duplicates);
    }
    let plan = &merged.units.plan;
    let folder = args.out.as_deref();
    output::check(folder.map(|folder| path_in(folder, &plan.experiment.name)).as_deref())?;
    let gathered = merged.gather();
    let missing = &gathered.missing;
    if let Some(file) = &args.missing {
        write_missing(&merged, missing, file)?;
    }
    let version = merged.version(args.mixed_builds);
    let results = collect::results(&gathered.plan, &gathered.outcomes, &merged.units.target, &version);
    say_failures(&results);
    match args.format.of_results() {
        Some(format) => show(&gathered.plan, &results, folder, format, &Filter::default())?,
        None => {
            records(&merged)?;
            folder.map(|folder| output::keep(&results, folder)).transpose()?;
        }
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().take(3).map(|index| merged.units.name(*index)).collect();
        let more = if missing.len() > names.len() { "; and more" } else { "" };
        let (count, all) = (missing.len(), gathered.needed);
        say!(
            "incomplete: {count} of {all} units have no record: {}{more}",
            names.join("; ")
        );
    }
    let whole = missing.is_empty() && results.failures.is_empty();
    Ok(if whole { Done::Whole } else { Done::Failed })
}

/// Prints the plan and the records.
fn records(merged: &Merged) -> Result<()> {
    output::raw(&Header::of(&merged.units).line())?;
    for (index, record) in merged.records.iter().enumerate() {
        if let Some(record) = record {
            output::raw(&record.clone().named(&merged.units, index).line())?;
        }
    }
    Ok(())
}

/// Writes the plan and its units without a record.
fn write_missing(merged: &Merged, missing: &[usize], path: &Path) -> Result<()> {
    let mut text = Header::of(&merged.units).line();
    for index in missing {
        text.push_str(&Unit::of(&merged.units, *index).line());
    }
    Ok(file::write(path, text.as_bytes())?)
}
