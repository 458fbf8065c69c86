//! Finds, plans and runs the experiment that the user names.

use std::io::{self, ErrorKind, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::adaptive::BUDGET;
use holdfast_lab::collect;
use holdfast_lab::diagnostic::one_of;
use holdfast_lab::document;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::file;
use holdfast_lab::options::{Adaptive, Options};
use holdfast_lab::plan::Plan;
use holdfast_lab::results::Results;
use holdfast_lab::run::{self, Execution, Outcomes, Runner, Slots};
use holdfast_lab::shipped::{self, EXPERIMENTS, MACHINES, Shipped};

use crate::args::{AdaptiveArgs, PlanArgs, VERSION};
use crate::error::{Error, Result};
use crate::extended;
use crate::output::{note, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

/// Returns the names of `files`.
pub fn names(files: &'static [Shipped]) -> impl Iterator<Item = &'static str> + Clone {
    files.iter().map(|shipped| shipped.name)
}

/// Returns the text of the file `target`. A `target` that does not look like a file name was meant as one of `known`,
/// so the error suggests those names.
pub fn text_of(target: &str, known: &'static [Shipped]) -> Result<String, Refused> {
    file::read_text(Path::new(target), file::TEXT_BYTES_MAX).map_err(|error| {
        let is_file = [".toml", ".json"].iter().any(|end| target.ends_with(end)) || target.contains('/');
        if is_file || (error.kind() != ErrorKind::NotFound && !target.is_empty()) {
            return Refused::Unreadable(target.to_owned(), error);
        }
        let expected = format!("a TOML file, or {}", one_of(target, names(known)));
        Refused::instead(format!("{target:?}"), expected)
    })
}

/// Reads the experiment called `target`: a shipped experiment, or a file.
pub fn load(target: &str) -> Result<Experiment> {
    if let Some(shipped) = shipped::find(EXPERIMENTS, target) {
        return Ok(Experiment::parse(shipped.file, shipped.text)?);
    }
    let of_machine = |file: &str| {
        let expected = format!("an experiment; one runs on this machine by --set machine.profile={file}");
        Refused::instead(format!("the machine profile {file}"), expected)
    };
    if shipped::find(MACHINES, target).is_some() {
        return Err(of_machine(target).into());
    }
    let text = text_of(target, EXPERIMENTS)?;
    if is_json(&text) {
        let expected = "an experiment as TOML; results are read by `holdfast explain`, `compare` and `report`";
        return Err(Refused::instead(format!("JSON in {target}"), expected).into());
    }
    if document::parse(target, &text).is_ok_and(|document| shipped::is_machine(&document)) {
        return Err(of_machine(target).into());
    }
    Ok(Experiment::parse(target, &text)?)
}

/// Returns whether `text` is meant as a JSON document: no TOML document starts like that.
pub fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Returns whether `target` is a result file, by its name or by its content.
pub fn is_results(target: &str) -> bool {
    let path = Path::new(target);
    let begins = || file::read_text(path, file::BYTES_MAX).is_ok_and(|text| is_json(&text));
    target.ends_with(".json") || ((path.is_file() || target == file::STANDARD_INPUT) && begins())
}

/// Returns the plan for `target`.
pub fn plan(target: &str, options: &Options) -> Result<Plan> {
    let plan = Plan::new(load(target)?, &extended::options(options))?;
    for remark in &plan.remarks {
        note!("remark: {remark}");
    }
    Ok(plan)
}

/// Returns the options of the plan for `target`, with the budget of adaptive runs.
pub fn options(target: &str, plan: &PlanArgs, adaptive: &AdaptiveArgs) -> Result<Options> {
    let options = plan.options();
    let Some(percent) = adaptive.until_ci else {
        return Ok(options);
    };
    let first = match options.seeds {
        Some(seeds) => seeds,
        None => load(target)?.seeds,
    };
    let seeds_max = adaptive.seeds_max.unwrap_or_else(|| first.saturating_mul(BUDGET));
    Ok(Options {
        adaptive: Some(Adaptive { percent, seeds_max }),
        ..options
    })
}

/// Number of runs that start without a question.
const RUNS_UNASKED: usize = 10_000;

/// Asks whether `plan` shall start, if it has very many runs. `yes`: the user has said so before.
pub fn confirm(plan: &Plan, yes: bool) -> Result<()> {
    let runs = plan.runs();
    if yes || runs <= RUNS_UNASKED {
        return Ok(());
    }
    let mut answer = String::new();
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        say!("{} has {runs} runs. Start them? [y/N]", plan.experiment.name);
        io::stdin()
            .read_line(&mut answer)
            .map_err(Error::of("cannot read the answer"))?;
    }
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Refused::instead(format!("{runs} runs"), format!("at most {RUNS_UNASKED}, or --yes")).into()),
    }
}

/// Runs `plan` in virtual time, with progress; Ctrl-C ends it early.
pub fn execute(plan: &Plan, jobs: NonZeroUsize) -> Result<Outcomes> {
    execute_by(&run::simulate, plan, jobs)
}

/// Runs `plan` with `runner`, as [`execute`] does.
pub fn execute_by(runner: Runner<'_>, plan: &Plan, jobs: NonZeroUsize) -> Result<Outcomes> {
    let call_off = signal::call_off()?;
    let bar = Bar::of(plan);
    let execution = Execution {
        runner,
        jobs,
        call_off,
        progress: &|done| bar.step(done),
    };
    Ok(bar.while_beating(call_off, || run::run(plan, execution)))
}

/// Runs some runs of `plan` in virtual time, as [`execute`] runs all. Puts their outcomes into `slots`.
pub fn execute_some(plan: &Plan, chosen: &[usize], jobs: NonZeroUsize, slots: &Slots) -> Result<()> {
    let call_off = signal::call_off()?;
    let bar = Bar::counted("runs");
    let execution = Execution {
        runner: &run::simulate,
        jobs,
        call_off,
        progress: &|done| bar.step(done),
    };
    bar.while_beating(call_off, || run::fill(plan, chosen, execution, slots));
    Ok(())
}

/// Plans and runs `target`. `yes`: however many runs it has.
pub fn results(target: &str, options: &Options, jobs: NonZeroUsize, yes: bool) -> Result<Results> {
    let plan = plan(target, options)?;
    confirm(&plan, yes)?;
    let outcomes = execute(&plan, jobs)?;
    Ok(collect::results(&plan, &outcomes, target, VERSION))
}
