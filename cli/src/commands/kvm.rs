//! `holdfast kvm`.

use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::bench::Machine;
use holdfast_lab::collect;
use holdfast_lab::plan::{Options, Plan};
use holdfast_lab::reality::doctor::{self, Check, Report, Verdict};
use holdfast_lab::reality::{self, kvm as here};
use holdfast_lab::run::{self as runs, Execution};

use crate::Done;
use crate::args::{DoctorArgs, Format, KvmArgs, KvmCommand, KvmRunArgs, VERSION};
use crate::experiment::{self, Unknown};
use crate::output;
use crate::progress::Bar;
use crate::signal;

/// What concerns this host's real KVM.
pub fn kvm(args: &KvmArgs) -> anyhow::Result<Done> {
    match &args.command {
        KvmCommand::Doctor(args) => doctor(args),
        KvmCommand::Run(args) => run(args),
    }
}

/// Says what this host can do.
fn doctor(args: &DoctorArgs) -> anyhow::Result<Done> {
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    if !root.is_dir() {
        return Err(Unknown::instead(root.display().to_string(), "--root to be a directory").into());
    }
    // Only this machine has a /dev/kvm that can be asked.
    let probe = args.root.is_none().then(reality::kvm::probe);
    let report = doctor::examine(root, probe.as_ref());
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

/// Runs an experiment on this host's KVM.
fn run(args: &KvmRunArgs) -> anyhow::Result<Done> {
    let options = Options {
        seeds: args.seeds,
        scale: args.scale,
        set: args.set.clone(),
        cases: args.case.clone(),
        variants: args.variant.clone(),
        ..Options::default()
    };
    let plan = experiment::plan(&args.experiment, &options)?;
    here::usable().map_err(anyhow::Error::msg)?;
    eprintln!("on a real host these do not apply:");
    for remark in here::remarks(&plan) {
        eprintln!("  - {remark}");
    }
    let mut results = execute(&plan, &args.experiment)?;
    let machine = Machine::here();
    let (cpu, kernel) = (machine.cpu.unwrap_or_default(), machine.kernel.unwrap_or_default());
    results.machine = format!("this host: {cpu}, {} CPUs, {kernel}", machine.cpus);
    results.command = results.command.replacen("holdfast run", "holdfast kvm run", 1);
    for failed in &mut results.failures {
        failed.replay = failed.replay.replacen("holdfast run", "holdfast kvm run", 1);
    }
    let done = super::run::finish(&results);
    if let Some(folder) = &args.out {
        eprintln!("results: {}", results.write(folder)?.display());
    }
    match args.format {
        Format::Json => output::raw(&results.to_json())?,
        Format::Table => super::run::print(&plan, &results)?,
    }
    Ok(done)
}

fn execute(plan: &Plan, target: &str) -> anyhow::Result<holdfast_lab::results::Results> {
    let call_off = signal::call_off()?;
    let bar = Bar::new(plan);
    let outcomes = runs::run(
        plan,
        Execution {
            runner: &here::run_here,
            // One at a time: they share the CPUs that they are to be measured on.
            jobs: NonZeroUsize::MIN,
            call_off,
            progress: &|done| bar.step(done),
        },
    );
    bar.finish();
    Ok(collect::results(plan, &outcomes, target, VERSION))
}
