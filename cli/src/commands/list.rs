//! `holdfast list`.

use holdfast_lab::experiment::Experiment;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped::{EXPERIMENTS, MACHINES, MEASURED_ON};
use serde::Serialize;

use crate::Done;
use crate::args::{Format, ListArgs};
use crate::error::Result;
use crate::output;

#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    source: Option<String>,
    /// CPU time of all runs, in seconds.
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
    let mut list = List {
        schema: "holdfast.list/1",
        experiments: Vec::new(),
        machines: Vec::new(),
    };
    for shipped in EXPERIMENTS {
        let Experiment {
            name,
            title,
            source,
            cpu_seconds,
            ..
        } = Experiment::parse(shipped.file, shipped.text)?;
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
                output::line(&format!("      about {seconds} s of CPU time on {MEASURED_ON}"))?;
            }
            if let Some(source) = &entry.source {
                output::line(&format!("      {source}"))?;
            }
        }
    }
    Ok(Done::Whole)
}
