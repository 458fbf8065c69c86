//! `holdfast kvm`.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use holdfast_lab::plan::Plan;
use holdfast_lab::rerun::quoted;
use holdfast_lab::results;
use holdfast_lab::run::Runner;
use holdfast_lab::{collect, file, trace};
use holdfast_real_host::doctor::{self, Check, Report, Verdict};
use holdfast_real_host::linux::{self, KernelPath, Linux};
use holdfast_real_host::machine::Machine;
use holdfast_real_host::{kvm as here, tracing};

use crate::Done;
use crate::args::{DoctorArgs, Format, KvmArgs, KvmCommand, KvmRunArgs, LinuxPath, VERSION};
use crate::commands::run::{finish, say_failures, show as show_results};
use crate::error::Result;
use crate::experiment;
use crate::output::{self, say};
use crate::refused::{Refused, Skipped};

/// Runs a command that uses this host's KVM.
pub fn kvm(args: &KvmArgs) -> Result<Done> {
    match &args.command {
        KvmCommand::Doctor(args) => doctor(args),
        KvmCommand::Run(args) => run(args),
    }
}

/// Examines this host, or the files of another host.
fn doctor(args: &DoctorArgs) -> Result<Done> {
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    if !root.is_dir() {
        let found = format!("{:?}", root.display().to_string());
        return Err(Refused::instead(found, "--root to be a directory").into());
    }
    // Only this machine's /dev/kvm can be asked.
    let probe = args.root.is_none().then(doctor::ask);
    let report = doctor::examine(root, probe.as_ref());
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => show(&report)?,
    }
    Ok(Done::Whole)
}

/// Longest finding in a table, in characters.
const FOUND_MAX: usize = 60;

fn show(report: &Report) -> Result<()> {
    let mut table = output::table("about | looked at | found | verdict".split(" | "), 4);
    let lacking = |check: &&Check| matches!(check.verdict, Verdict::Lacking | Verdict::Unknown);
    for check in &report.checks {
        // The full text follows below the table.
        let short = lacking(&check) && check.found.chars().count() > FOUND_MAX;
        let found = match short {
            true => check.found.chars().take(FOUND_MAX).chain("...".chars()).collect(),
            false => check.found.clone(),
        };
        table.add_row([check.area, check.name, &found, check.verdict.name()]);
    }
    output::line(&table.to_string())?;
    for check in report.checks.iter().filter(lacking) {
        let means = check.means.as_deref().unwrap_or_default();
        output::line(&format!("\n{}: {}\n  {means}", check.name, check.found))?;
        if let Some(change) = &check.change {
            output::line(&format!("  to change it: {change}"))?;
        }
    }
    Ok(())
}

/// Runs an experiment on this host's KVM.
fn run(args: &KvmRunArgs) -> Result<Done> {
    let plan = experiment::plan(&args.experiment, &args.selection.options())?;
    let path = match args.linux.path {
        LinuxPath::Dup => KernelPath::Dup,
        LinuxPath::Futex => KernelPath::Futex,
    };
    let runs = counted(&plan);
    let linux = args
        .linux
        .linux
        .as_ref()
        .map(|file| kernel(file.as_deref(), path, &runs));
    let linux = linux.transpose()?.map(|linux| Linux {
        append: args.linux.append.clone(),
        ..linux
    });
    if args.trace.is_some() && plan.runs() > 1 {
        let runs = format!("\"{} runs\"", plan.runs());
        let expected = "a single one with --trace: choose by --case, --variant and --seeds 1";
        return Err(Refused::instead(runs, expected).into());
    }
    output::check(args.trace.as_deref())?;
    let folder = args.results.out.as_deref();
    output::check(
        folder
            .map(|folder| results::path_in(folder, &plan.experiment.name))
            .as_deref(),
    )?;
    here::check(&plan, linux.as_ref()).map_err(Refused::OnThisHost)?;
    usable(&runs)?;
    say!("on a real host these do not apply:");
    for remark in here::remarks(&plan, linux.as_ref()) {
        say!("  - {remark}");
    }
    let (recorded, guests) = (Mutex::new(None), here::Runs::default());
    let runner: Runner<'_> = &|config, call_off| match (&args.trace, &linux) {
        (Some(_), linux) => {
            let (outcome, timeline) = tracing::run(linux.as_ref(), config, call_off)?;
            *recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(timeline);
            Ok(outcome)
        }
        (None, linux) => guests.run(linux.as_ref(), config, call_off),
    };
    // One run at a time, since runs share the CPUs that they are measured on.
    let outcomes = experiment::execute_by(runner, &plan, NonZeroUsize::MIN)?;
    let mut results = collect::results(&plan, &outcomes, &args.experiment, VERSION);
    let recorded = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut written = Ok(());
    if let (Some(path), Some(timeline)) = (&args.trace, recorded) {
        let bytes = trace::encode(&timeline);
        // If this fails, the results are still printed first.
        written = file::write(path, &bytes);
        if written.is_ok() {
            say!(
                "timeline: {} ({:.1} MB); open https://ui.perfetto.dev and drop the file there: it stays on this machine",
                path.display(),
                bytes.len() as f64 / 1e6
            );
        }
    }
    let machine = Machine::here();
    let (cpu, kernel) = (machine.cpu.unwrap_or_default(), machine.kernel.unwrap_or_default());
    results.machine = format!("this host: {cpu}, {} CPUs, {kernel}", machine.cpus);
    let mut command = "holdfast kvm run".to_owned();
    if let Some(linux) = &linux {
        results.machine += &format!("; guests: stock Linux {}", linux.kernel.release());
        command += &again(args);
    }
    results.command = results.command.replacen("holdfast run", &command, 1);
    for failed in &mut results.failures {
        failed.replay = failed.replay.replacen("holdfast run", &command, 1);
    }
    let kept = results.cases.iter().any(|case| !case.samples.is_empty());
    if let Some(failed) = results
        .failures
        .first()
        .filter(|_| guests.given_up() && linux.is_none() && !kept)
    {
        // KVM opens, but runs no guest of ours: this machine lacks it.
        return Err(Skipped::guests(&runs, &failed.error).into());
    }
    let done = match guests.given_up() {
        true => {
            say_failures(&results);
            say!("stopped: these guests fail on this host however often they are tried");
            Done::Failed
        }
        false => finish(&results),
    };
    let filter = args.results.filter();
    show_results(&plan, &results, folder, args.results.format, &filter)?;
    written?;
    Ok(done)
}

/// Returns the number of runs in words.
fn counted(plan: &Plan) -> String {
    format!("{} runs of {}", plan.runs(), plan.experiment.name)
}

/// Checks that there is a KVM for `what`.
pub fn usable(what: &str) -> Result<(), Skipped> {
    here::usable().map_err(|lack| Skipped {
        what: what.to_owned(),
        lack,
    })
}

/// Reads the kernel in `file`, or this host's own. A host without a readable kernel is not a mistake of the user.
pub(super) fn kernel(file: Option<&Path>, path: KernelPath, runs: &str) -> Result<Linux> {
    match (linux::read(file, path), file) {
        (Ok(linux), _) => Ok(linux),
        (Err(error), Some(_)) => Err(Refused::Unbootable(error.to_string()).into()),
        (Err(error), None) => Err(Skipped {
            what: runs.to_owned(),
            lack: format!("this host's own kernel: {error}; name another by --linux=BZIMAGE"),
        }
        .into()),
    }
}

/// Returns the options that ask for the same guests again.
fn again(args: &KvmRunArgs) -> String {
    let file = args.linux.linux.iter().flatten().next();
    let file = file.map(|file| format!("={}", quoted(&file.display().to_string())));
    let path = match args.linux.path {
        LinuxPath::Dup => "",
        LinuxPath::Futex => " --path futex",
    };
    let append = match args.linux.append.as_str() {
        "" => String::new(),
        more => format!(" --append={}", quoted(more)),
    };
    format!(" --linux{}{path}{append}", file.unwrap_or_default())
}
