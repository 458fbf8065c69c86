//! `holdfast run`.

use std::path::Path;

use holdfast_lab::adaptive;
use holdfast_lab::collect;
use holdfast_lab::compare::{self, Compared, Matrix};
use holdfast_lab::determinism::first_difference;
use holdfast_lab::display;
use holdfast_lab::doubts::doubts;
use holdfast_lab::filter::Filter;
use holdfast_lab::options::Adaptive;
use holdfast_lab::plan::Plan;
use holdfast_lab::remarks::remarks;
use holdfast_lab::results::{FailedRun, Results, path_in};
use holdfast_lab::run::{Outcomes, Slots};
use holdfast_lab::setup;
use holdfast_lab::tidy::Tidy;

use crate::Done;
use crate::args::{ResultFormat, RunArgs, VERSION};
use crate::commands::units;
use crate::error::Result;
use crate::experiment;
use crate::output::{self, note, say};
use crate::refused::Refused;

/// Runs an experiment and prints its results.
pub fn run(args: &RunArgs) -> Result<Done> {
    if args.units.units.is_some() || args.units.shard.is_some() {
        return units::records(args);
    }
    if args.check_determinism && args.units.cache.is_some() {
        return Err(Refused::misplaced("--check-determinism", "runs that are not taken from --cache").into());
    }
    if args.check_determinism && args.adaptive.until_ci.is_some() {
        return Err(Refused::misplaced("--check-determinism", "a run without --until-ci").into());
    }
    let plan = experiment::plan(
        &args.experiment,
        &experiment::options(&args.experiment, &args.plan, &args.adaptive)?,
    )?;
    experiment::confirm(&plan, args.plan.yes)?;
    let kept = args.results.out.as_deref();
    output::check(kept.map(|folder| path_in(folder, &plan.experiment.name)).as_deref())?;
    let jobs = args.plan.jobs.count();
    let (plan, outcomes) = match (&args.units.cache, plan.options.adaptive) {
        (cache, Some(adaptive)) => adaptively(&plan, adaptive, args, cache.as_deref())?,
        (Some(folder), None) => units::execute(plan, &args.experiment, jobs, folder)?,
        (None, None) => {
            let outcomes = experiment::execute(&plan, jobs)?;
            (plan, outcomes)
        }
    };
    let results = collect::results(&plan, &outcomes, &args.experiment, VERSION);
    let mut done = finish(&results);
    if args.check_determinism && results.complete {
        let again = experiment::execute(&plan, jobs)?;
        match first_difference(&plan, &outcomes, &again) {
            Some(difference) => {
                say!("error: not deterministic: {difference}");
                done = Done::Failed;
            }
            None if again.complete() => note!("deterministic: {} runs gave the same twice", plan.runs()),
            None => {
                say!("incomplete: interrupted before all runs were repeated");
                done = Done::Interrupted;
            }
        }
    }
    let filter = args.results.filter();
    show(
        &plan,
        &results,
        args.results.out.as_deref(),
        args.results.format,
        &filter,
    )?;
    Ok(done)
}

/// Runs `plan` in rounds, and says which cells spent the budget.
fn adaptively(plan: &Plan, adaptive: Adaptive, args: &RunArgs, cache: Option<&Path>) -> Result<(Plan, Outcomes)> {
    let adapted = match cache {
        Some(folder) => units::execute_adaptively(plan, adaptive, args, folder)?,
        None => {
            let round =
                |chosen: &[usize], slots: &Slots| experiment::execute_some(plan, chosen, args.plan.jobs.count(), slots);
            adaptive::run(plan, adaptive, round)?
        }
    };
    let wide = adapted.wide.iter().map(|cell| &adapted.plan.cells[*cell]);
    let names: Vec<String> = wide.map(|cell| format!("{} / {}", cell.case, cell.variant)).collect();
    if !names.is_empty() && adapted.outcomes.complete() {
        let shown = names[..names.len().min(3)].join("; ");
        let more = if names.len() > 3 { "; and more" } else { "" };
        note!(
            "remark: {} of {} cells have wider intervals than {} % after {} seeds: {shown}{more}",
            names.len(),
            adapted.plan.cells.len(),
            adaptive.percent,
            adaptive.seeds_max
        );
    }
    Ok((adapted.plan, adapted.outcomes))
}

/// Writes `results` to a folder and prints what the `filter` leaves of them. An error of one does not prevent the
/// other.
pub fn show(
    plan: &Plan,
    results: &Results,
    folder: Option<&Path>,
    format: ResultFormat,
    filter: &Filter,
) -> Result<()> {
    let written = folder.map(|folder| output::keep(results, folder)).transpose();
    match format {
        ResultFormat::Json => output::raw(&results.to_json())?,
        ResultFormat::Csv => output::raw(&Tidy::Samples.csv(results))?,
        ResultFormat::Table => print(plan, results, filter)?,
    }
    Ok(written.map(drop)?)
}

/// Reports failed runs: for each cell the first, with the command that replays it, and the other seeds.
pub fn say_failures(results: &Results) {
    let of_one_cell = |a: &FailedRun, b: &FailedRun| (&a.case, &a.variant) == (&b.case, &b.variant);
    for cell in results.failures.chunk_by(of_one_cell) {
        let Some((failed, others)) = cell.split_first() else {
            continue;
        };
        let (case, variant, seed) = (&failed.case, &failed.variant, failed.seed);
        say!("error: case {case}, variant {variant}, seed {seed}: {}", failed.error);
        say!("replay with version {}: {}", results.version, failed.replay);
        if !others.is_empty() {
            let seeds: Vec<String> = others.iter().map(|failed| failed.seed.to_string()).collect();
            say!(
                "case {case}, variant {variant} failed with these seeds too: {}",
                seeds.join(", ")
            );
        }
    }
}

/// Says what speaks against relying on `results`, and what stands in no table.
pub fn warn(results: &Results) {
    for doubt in doubts(results) {
        note!("warning: {doubt}");
    }
    for remark in remarks(results) {
        note!("remark: {remark}");
    }
}

/// Reports the end of the runs: failures, and whether runs are missing.
pub fn finish(results: &Results) -> Done {
    say_failures(results);
    if !results.complete {
        let done: usize = results.cases.iter().map(|case| case.samples.len()).sum();
        let all = results.cases.len() * results.seeds.len();
        say!("incomplete: interrupted before all runs were done: {done} of {all} samples are kept");
    }
    warn(results);
    match (results.complete, results.failures.is_empty()) {
        (false, _) => Done::Interrupted,
        (true, false) => Done::Failed,
        (true, true) => Done::Whole,
    }
}

/// Prints results as tables, and what is proven.
pub fn print(plan: &Plan, results: &Results, filter: &Filter) -> Result<()> {
    let experiment = &plan.experiment;
    output::line(&format!("{}: {}", experiment.name, experiment.title))?;
    let shown = filter.of(results.clone())?;
    let guest = display::only_guest(&shown).map_or_else(String::new, |vm| format!("guest {vm}, "));
    let runs = format!("{} cells x {} seeds", plan.cells.len(), plan.seeds.len());
    output::line(&format!(
        "machine {}, {guest}{runs}, scale {}, version {VERSION}\n",
        results.machine, results.scale
    ))?;
    if !results.are_of_real_host() {
        for line in setup::lines(plan).into_iter().chain(setup::load(plan, results)) {
            output::line(&line)?;
        }
        output::line("")?;
    }
    let alone = display::only_guest(&shown).is_some();
    let tables = display::kinds(&shown);
    let tables = tables
        .iter()
        .map(|cases| output::sheet(&display::results(cases, alone)));
    output::line(&tables.collect::<Vec<_>>().join("\n\n"))?;
    if !shown.totals.is_empty() {
        let totals = output::sheet(&display::totals(&shown));
        output::line(&format!("\n{totals}\n{}", output::wrapped(display::TOTALS_NOTE)))?;
    }
    if !display::services(&shown).rows.is_empty() {
        output::line(&services(&shown))?;
    }
    let mut notes = String::new();
    for line in display::also_published(&shown) {
        notes.push_str(&format!("\n{line}"));
    }
    if shown
        .cases
        .iter()
        .filter_map(|case| case.published.as_ref())
        .any(|published| published.calibrate)
    {
        notes.push_str("\n* The workload was calibrated on this figure: it is no prediction.");
    }
    if results.scale < 1.0 && shown.cases.iter().any(|case| case.metric == "elapsed") {
        notes.push_str(&format!(
            "\nElapsed times are full-size equivalents: measured time / {}.",
            results.scale
        ));
    }
    notes.push_str(&format!("\n{}", display::convoys_note(results.are_of_real_host())));
    output::line(&output::wrapped(&notes))?;
    let found = compare::variants(&shown, None)?;
    if found.matrix.rows.is_empty() {
        return Ok(());
    }
    output::line(&format!("\n{}", compared(&found)))
}

/// Returns the table of what the users of the guests measure, below its name.
fn services(results: &Results) -> String {
    let sheet = output::sheet(&display::services(results));
    format!(
        "\n{}:\n\n{sheet}\n{}",
        display::SERVICES,
        output::wrapped(display::SERVICES_NOTE)
    )
}

/// Returns the matrix of comparisons, and that of latencies if there is one, each below its verdict.
pub fn compared(found: &Compared) -> String {
    let latency = found.latency.as_ref();
    let latency = latency.map(|latency| format!("\n\n{}", table(&format!("{}. ", display::matrix::LATENCY), latency)));
    table("", &found.matrix) + &latency.unwrap_or_default()
}

/// Returns a matrix below its verdict, which begins with `head`.
fn table(head: &str, matrix: &Matrix) -> String {
    let sheet = output::sheet(&display::matrix::matrix(matrix));
    let [sentence, note] = [compare::sentence(matrix), display::matrix::note(matrix)];
    format!(
        "{}\n\n{sheet}\n{}",
        output::wrapped(&format!("{head}{sentence}")),
        output::wrapped(&note)
    )
}
