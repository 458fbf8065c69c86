//! `holdfast capacity`.

use std::path::Path;

use holdfast_lab::capacity::{Budget, Capacity, Point, search};
use holdfast_lab::draws::Draws;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::file;
use holdfast_lab::plan::Plan;
use holdfast_lab::sheet::Sheet;
use holdfast_lab::shipped::{self, EXPERIMENTS};
use holdfast_lab::{advise, trace};

use crate::Done;
use crate::args::{CapacityArgs, Format};
use crate::commands::import;
use crate::commands::replayed::Recording;
use crate::error::{Error, Result};
use crate::experiment;
use crate::extended;
use crate::output::{self, note, say};
use crate::refused::Refused;

/// Budget unless the user names one, in percent of the wanted time.
const READY: f64 = 5.0;

/// A host with one kind of VM.
struct Kind {
    experiment: Experiment,
    vm: String,
    /// The same, if it was recorded.
    recorded: Option<advise::Kind>,
}

/// Finds out how many VMs of a kind fit.
pub fn capacity(args: &CapacityArgs) -> Result<Done> {
    let budget = match &args.p99 {
        None => Budget::ReadyPercent(args.ready.unwrap_or(READY)),
        Some(time) => Budget::P99Ms(trace::nanos("--p99", time).map_err(Error::from)? as f64 / 1e6),
    };
    let Some(kind) = kind(args)? else {
        return Ok(Done::Interrupted);
    };
    let idle_exit_ns = kind.recorded.as_ref().and_then(|kind| kind.idle_exit_ns);
    let mut plan = None;
    let run = |copies: usize| -> Result<Option<Point>> {
        let plan = plan.insert(planned(args, &kind, copies)?);
        let outcomes = experiment::execute(plan, args.jobs.count())?;
        let point = Point::of(plan, &outcomes, (&kind.vm, copies), idle_exit_ns).map_err(Error::Failed)?;
        if let Some(point) = &point
            && point.figure(budget).is_none()
        {
            let expected = "a VM whose workload counts operations, or --ready";
            return Err(Refused::instead(format!("--p99 for {}, which counts none", kind.vm), expected).into());
        }
        Ok(point)
    };
    let Some(capacity) = search(&kind.vm, budget, args.most as usize, run)? else {
        return Ok(Done::Interrupted);
    };
    match args.format {
        Format::Json => output::json(&capacity)?,
        Format::Table => print(&capacity)?,
    }
    Ok(Done::Whole)
}

/// Returns the kind of VM that `args` name. `None`: interrupted.
fn kind(args: &CapacityArgs) -> Result<Option<Kind>> {
    let first = args.files[0].to_string_lossy();
    let described = first.ends_with(".toml") || shipped::find(EXPERIMENTS, &first).is_some();
    if !described {
        return recorded(args);
    }
    if let Some(second) = args.files.get(1) {
        return Err(Refused::instead(second.display().to_string(), "one experiment").into());
    }
    let mut experiment = experiment::load(&first)?;
    let names = &experiment.names;
    let single = |name: &&String| {
        !names
            .families
            .iter()
            .any(|family| name.starts_with(&format!("{}-", family.name)))
    };
    let families = names.families.iter().map(|family| &family.name);
    let known: Vec<String> = families.chain(names.vms.iter().filter(single)).cloned().collect();
    let vm = chosen(args, &known)?;
    experiment.let_count(&vm);
    Ok(Some(Kind {
        experiment,
        vm,
        recorded: None,
    }))
}

/// Returns the chosen one of the VMs `known`.
fn chosen(args: &CapacityArgs, known: &[String]) -> Result<String> {
    match (&args.vm, known) {
        (Some(name), _) if known.contains(name) => Ok(name.clone()),
        (Some(name), _) => Err(Refused::among(name, known.iter().map(String::as_str)).into()),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(Refused::instead("no --vm", format!("one of {}", known.join(", "))).into()),
    }
}

/// Returns the recorded kind of VM.
fn recorded(args: &CapacityArgs) -> Result<Option<Kind>> {
    let Some(recording) = Recording::read(&args.files)? else {
        return Ok(None);
    };
    let account = recording.account();
    let repeated = recording.repeated().map_err(import::refused)?;
    let known: Vec<String> = account.vms.iter().map(|vm| vm.name.clone()).collect();
    let vm = chosen(args, &known)?;
    let reading = match recording.checked(&repeated)? {
        None => return Ok(None),
        Some(Err(error)) => {
            say!("warning: the replay is not compared with the recording: {error}");
            Default::default()
        }
        Some(Ok((replay, check))) => {
            if !check.passes() {
                say!("warning: the replay does not give the recording back: do not rely on the answer");
            }
            replay.reading
        }
    };
    let kind = advise::Kind::new(account, &repeated, &reading, &vm);
    let kind = kind.ok_or_else(|| Refused::among(&vm, known.iter().map(String::as_str)))?;
    Ok(Some(Kind {
        experiment: kind.experiment()?,
        vm: kind.name.clone(),
        recorded: Some(kind),
    }))
}

/// Returns the plan of `copies`.
fn planned(args: &CapacityArgs, kind: &Kind, copies: usize) -> Result<Plan> {
    let mut options = extended::options(&args.selection.options());
    options.set.push(format!("vm.{}.count={copies}", kind.vm));
    let all = &kind.experiment;
    // One set-up is asked about: the first, unless the user names another.
    for (chosen, layers) in [(&mut options.cases, &all.cases), (&mut options.variants, &all.variants)] {
        chosen.truncate(1);
        if chosen.is_empty() {
            chosen.extend(layers.first().map(|layer| layer.name.clone()));
        }
    }
    let read = |path: &Path| match &kind.recorded {
        Some(recorded) => recorded.read(path),
        None => file::read_text(path, file::TEXT_BYTES_MAX),
    };
    let plan = Plan::of_cells(all.clone(), &options, &read, None)?;
    match plan.cells.len() {
        1 => Ok(plan),
        cells => Err(Refused::instead(format!("{cells} cells, by a sweep"), "one case and one variant").into()),
    }
}

fn print(capacity: &Capacity) -> Result<()> {
    let range = |draws: &Draws| format!("{}-{}", output::number(draws.min), output::number(draws.max));
    let of = |draws: Option<Draws>| match draws {
        Some(draws) => [output::number(draws.mean), range(&draws)],
        None => ["-".to_owned(), "-".to_owned()],
    };
    let heads = [
        "copies",
        "vCPUs per pCPU",
        "ready of wanted, %",
        "its range",
        "p99, ms",
        "range of p99",
    ];
    let mut sheet = Sheet::new(heads, 0);
    for point in &capacity.curve {
        let [ready, ready_range] = of(Some(point.ready_percent));
        let [p99, p99_range] = of(point.p99_ms);
        let density = format!("{:.2}", point.vcpus_per_pcpu);
        sheet.rows.push(vec![
            point.copies.to_string(),
            density,
            ready,
            ready_range,
            p99,
            p99_range,
        ]);
    }
    let (vm, fits, [all, some]) = (&capacity.vm, capacity.fits, capacity.range);
    let limit = match capacity.budget {
        Budget::ReadyPercent(limit) => format!("ready for at most {limit} % of the wanted time"),
        Budget::P99Ms(limit) => format!("p99 of at most {limit} ms"),
    };
    let fit = match fits {
        1 => format!("1 copy of {vm} fits"),
        _ => format!("{fits} copies of {vm} fit"),
    };
    let sentence = match fits {
        0 => format!("Not even one {vm} fits: {limit}."),
        _ if capacity.limited => format!("At least {fit}: {limit}. More were not tried (--most)."),
        _ => format!(
            "{fit}: {limit}. The knee is between {all} and {} copies, over the draws.",
            some + 1
        ),
    };
    output::line(&output::wrapped(&sentence))?;
    output::line(&format!("\n{}", output::sheet(&sheet.with_content())))?;
    note!("remark: copies begin at the same time, and share nothing but the host");
    Ok(())
}
