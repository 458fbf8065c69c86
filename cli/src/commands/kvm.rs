//! `holdfast kvm`.

use std::path::Path;

use holdfast_lab::reality::doctor::{self, Check, Report, Verdict};

use crate::Done;
use crate::args::{DoctorArgs, Format, KvmArgs, KvmCommand};
use crate::experiment::Unknown;
use crate::output;

/// What concerns this host's real KVM.
pub fn kvm(args: &KvmArgs) -> anyhow::Result<Done> {
    match &args.command {
        KvmCommand::Doctor(args) => doctor(args),
    }
}

/// Says what this host can do.
fn doctor(args: &DoctorArgs) -> anyhow::Result<Done> {
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    if !root.is_dir() {
        return Err(Unknown::instead(root.display().to_string(), "--root to be a directory").into());
    }
    let report = doctor::examine(root, None);
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => show(&report)?,
    }
    Ok(Done::Whole)
}

fn show(report: &Report) -> anyhow::Result<()> {
    let mut table = output::table(&["about", "looked at", "found", "verdict"], 4);
    for check in &report.checks {
        table.add_row([check.area, check.name, &check.found, check.verdict.name()]);
    }
    output::line(&table.to_string())?;
    let lacking = |check: &&Check| matches!(check.verdict, Verdict::Lacking | Verdict::Unknown);
    for check in report.checks.iter().filter(lacking) {
        let means = check.means.as_deref().unwrap_or("nothing follows from it");
        output::line(&format!("\n{}: {}\n  {means}", check.name, check.found))?;
        if let Some(change) = &check.change {
            output::line(&format!("  to change it: {change}"))?;
        }
    }
    Ok(())
}
