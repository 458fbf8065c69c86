//! `holdfast list`.

use std::path::Path;

use holdfast_lab::experiment::Experiment;
use holdfast_lab::meter;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped::{CellCost, Costs, EXPERIMENTS, MACHINES, costs};
use holdfast_lab::units::{Cache, Units};
use serde::Serialize;

use crate::Done;
use crate::args::{Format, ListArgs};
use crate::error::Result;
use crate::extended;
use crate::output::{self, number, say};

#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    source: Option<String>,
    /// Measured CPU time of all runs with the experiment's own seeds and scale, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds: Option<f64>,
}

#[derive(Serialize)]
struct List {
    schema: &'static str,
    experiments: Vec<Entry>,
    machines: Vec<Entry>,
}

/// Lists the shipped files.
pub fn list(args: &ListArgs) -> Result<Done> {
    if let Some(folder) = &args.costs {
        return measured(folder);
    }
    let mut list = List {
        schema: "holdfast.list/1",
        experiments: Vec::new(),
        machines: Vec::new(),
    };
    for shipped in EXPERIMENTS {
        let experiment = Experiment::parse(shipped.file, shipped.text)?;
        let cpu_seconds = costs().experiment_s(&experiment.name, experiment.seeds);
        let Experiment {
            name, title, source, ..
        } = experiment;
        list.experiments.push(Entry {
            name,
            title,
            source,
            cpu_seconds,
        });
    }
    for shipped in MACHINES {
        let MachineProfile { name, title, .. } = MachineProfile::parse(shipped.file, shipped.text)?;
        list.machines.push(Entry {
            name,
            title,
            source: None,
            cpu_seconds: None,
        });
    }
    if args.format == Format::Json {
        output::json(&list)?;
        return Ok(Done::Whole);
    }
    for (heading, entries) in [("Experiments", &list.experiments), ("Machine profiles", &list.machines)] {
        output::line(&format!("{heading}:"))?;
        for entry in entries {
            output::line(&format!("  {}\n      {}", entry.name, entry.title))?;
            if let Some(seconds) = entry.cpu_seconds {
                let (seconds, cpu) = (number(seconds), &costs().cpu);
                output::line(&format!("      {seconds} s of CPU time, measured on one CPU of: {cpu}"))?;
            }
            if let Some(source) = &entry.source {
                output::line(&format!("      {source}"))?;
            }
        }
    }
    Ok(Done::Whole)
}

/// Prints the measured costs that the cache in `folder` has, as the file in `lab/src/shipped`.
fn measured(folder: &Path) -> Result<Done> {
    let cache = Cache::at(folder);
    let mut cells = Vec::new();
    let mut missing = 0;
    for shipped in EXPERIMENTS {
        let experiment = Experiment::parse(shipped.file, shipped.text)?;
        let plan = Plan::new(experiment, &extended::options(&Options::default()))?;
        let units = Units::new(plan, shipped.name, extended::build());
        for (cell, id) in units.plan.cells.iter().zip(&units.ids) {
            match cache.predicted_s(*id) {
                None => missing += 1,
                Some(cpu_s) => cells.push(CellCost {
                    experiment: shipped.name.to_owned(),
                    case: cell.case.clone(),
                    variant: cell.variant.clone(),
                    cpu_s,
                }),
            }
        }
    }
    let cpu = meter::cpu_name().unwrap_or_else(|| "a CPU without a name".to_owned());
    output::raw(&Costs::new(&cpu, cells).text())?;
    if missing > 0 {
        say!(
            "incomplete: {missing} cells have no record of this build in {}",
            folder.display()
        );
        return Ok(Done::Failed);
    }
    Ok(Done::Whole)
}
