//! `holdfast validate`: predictions compared with published figures.

use holdfast_lab::collect;
use holdfast_lab::options::Options;
use holdfast_lab::quick::{BUDGET_S, Quick};
use holdfast_lab::results::{Results, path_in};
use holdfast_lab::sheet::Sheet;
use holdfast_lab::shipped::{self, EXPERIMENTS, costs};
use holdfast_lab::validate::{self, LARGE, Order, SIZE, Validation};

use super::run::finish;
use super::units;
use crate::Done;
use crate::args::{Format, PublishedArgs, VERSION, ValidateArgs};
use crate::error::Result;
use crate::experiment;
use crate::output::{self, dash, note, number, optional, say};
use crate::refused::Refused;

/// The commands of `holdfast validate`.
const OTHERS: [&str; 3] = ["threads", "kvm", "linux-sched"];

/// Runs `holdfast validate`, or a command of it.
pub fn validate(args: &ValidateArgs) -> Result<Done> {
    match &args.against {
        None => published(&args.published),
        Some(against) => super::real_host::validate(against),
    }
}

/// Compares predictions with published figures.
fn published(args: &PublishedArgs) -> Result<Done> {
    let mut names: Vec<&str> = args.experiments.iter().map(String::as_str).collect();
    let published = shipped::published();
    if names.is_empty() {
        names.clone_from(&published);
    }
    for name in &names {
        if OTHERS.contains(name) {
            let expected = format!("it first, as in `holdfast validate {name}`");
            return Err(Refused::instead(format!("{name:?} after other arguments"), expected).into());
        }
        if shipped::find(EXPERIMENTS, name).is_none() {
            return Err(Refused::among(name, experiment::names(EXPERIMENTS)).into());
        }
        if !published.contains(name) {
            let instead = format!("an experiment with published figures; `holdfast run {name}` predicts its own");
            return Err(Refused::instead(format!("{name:?}"), instead).into());
        }
    }
    if let Some(folder) = &args.out {
        output::check_folder(folder, &path_in(folder, names[0]), names.len())?;
        for name in &names {
            output::check(Some(&path_in(folder, name)))?;
        }
    }
    let quick = if args.quick { Some(choose(&names)?) } else { None };
    let work: Vec<(String, Options)> = match &quick {
        Some(quick) => quick
            .parts
            .iter()
            .map(|part| (part.experiment.clone(), part.options()))
            .collect(),
        None => {
            let options = Options {
                seeds: args.seeds,
                scale: args.scale,
                ..Options::default()
            };
            names.iter().map(|name| ((*name).to_owned(), options.clone())).collect()
        }
    };
    let mut all = Vec::new();
    let mut done = Done::Whole;
    let mut written = Ok(());
    for (name, options) in &work {
        let results = predicted(name, options, args)?;
        match finish(&results) {
            Done::Whole => {}
            worse => done = worse,
        }
        if let Some(folder) = &args.out {
            // After an error the predictions are shown nevertheless.
            written = written.and(output::keep(&results, folder));
        }
        let complete = results.complete;
        all.push(results);
        if !complete {
            if args.cache.is_none() {
                say!("with --cache DIR the same command would continue");
            }
            break;
        }
    }
    let validation = validate::validate(&all);
    match args.format {
        Format::Json => output::json(&validation)?,
        Format::Table => output::line(&shown(&validation))?,
    }
    match (&quick, args.format) {
        (Some(quick), Format::Table) => output::line(&format!("\n{}", left_out(quick)))?,
        (Some(quick), Format::Json) => note!("{}", left_out(quick)),
        (None, _) => {}
    }
    written?;
    Ok(done)
}

/// Chooses what a quick validation of the experiments `names` runs.
fn choose(names: &[&str]) -> Result<Quick> {
    let experiments = names.iter().map(|name| experiment::load(name));
    let experiments: Vec<_> = experiments.collect::<Result<_>>()?;
    let quick = Quick::choose(&experiments, costs(), BUDGET_S);
    note!(
        "about {:.0} s of CPU time, as measured on one CPU of: {}",
        quick.cpu_s(),
        costs().cpu
    );
    Ok(quick)
}

/// Runs an experiment, or takes its runs from the cache.
fn predicted(name: &str, options: &Options, args: &PublishedArgs) -> Result<Results> {
    let jobs = args.jobs.count();
    let Some(folder) = &args.cache else {
        return experiment::results(name, options, jobs, true);
    };
    let (plan, outcomes) = units::execute(experiment::plan(name, options)?, name, jobs, folder)?;
    Ok(collect::results(&plan, &outcomes, name, VERSION))
}

/// Returns what a quick validation leaves out.
fn left_out(quick: &Quick) -> String {
    let mut lines = vec!["Left out of this quick validation:".to_owned()];
    for part in quick.parts.iter().filter(|part| part.seeds < part.seeds_whole) {
        let (name, cases) = (&part.experiment, part.cases.join(", "));
        let (seeds, whole) = (part.seeds, part.seeds_whole);
        lines.push(format!("- {name}, {cases}: {} of {whole} seeds", whole - seeds));
    }
    for left in &quick.left {
        let cost = match left.cpu_s {
            Some(seconds) => format!("takes {seconds:.0} s of CPU time"),
            None => "its cost was not measured".to_owned(),
        };
        lines.push(format!("- {}, {}: {cost}", left.experiment, left.case));
    }
    if lines.len() == 1 {
        return "This quick validation leaves nothing out.".to_owned();
    }
    lines.join("\n")
}

/// Returns the tables, the misses first, and what they show.
fn shown(validation: &Validation) -> String {
    let notes = |lines: &str| output::wrapped(lines);
    [
        output::wrapped(&summary(validation)),
        notes(
            "Orders of variants, by experiment. The experiment with the worst order comes first, and the worst order in \
             each:",
        ),
        orders(validation),
        notes(
            "*Published*, *predicted*: the mean of B over that of A. *Size*: the predicted effect over the published \
             one.\n*Slight*: right, but less than a quarter of the published difference.\n*Not proven*: the 95 % \
             confidence interval of the prediction includes no difference.\n*Uncertain*: so does that of the published \
             figures, or they are single runs, or equal means. Such a pair counts neither as right nor as wrong.",
        ),
        notes(
            "Levels, by experiment. The experiment with the largest miss comes first, and the largest miss in each:",
        ),
        levels(validation),
        notes(
            "Numbers after ± are standard deviations.\n*Inside*: within one published standard deviation of the \
             published mean.\nBrackets: that deviation is not below the mean, so the check is weak.\nA published single \
             run: how many of the predicted runs are below it.",
        ),
    ]
    .join("\n\n")
}

/// Returns `rows` as a table for each experiment. The experiments stand in the order of their first rows.
fn by_experiment(heads: &str, texts: usize, rows: impl Iterator<Item = (String, Vec<String>)>) -> String {
    let mut tables: Vec<(String, Sheet)> = Vec::new();
    for (experiment, row) in rows {
        match tables.iter_mut().find(|(name, _)| *name == experiment) {
            Some((_, sheet)) => sheet.rows.push(row),
            None => {
                let mut sheet = Sheet::new(heads.split(" | "), texts);
                sheet.rows.push(row);
                tables.push((experiment, sheet));
            }
        }
    }
    let table = |(experiment, sheet): (String, Sheet)| {
        // The unit of all rows stands above them.
        let unit = sheet.heads.iter().position(|head| head == "unit");
        let unit = unit.map(|at| sheet.rows[0][at].clone());
        let whole = sheet.heads.len();
        let sheet = sheet.without_one("unit");
        let unit = unit.filter(|_| sheet.heads.len() < whole);
        let unit = unit.map_or_else(String::new, |unit| format!(", {unit}"));
        let sheet = sheet.without_one("guest").with_content();
        format!("{experiment}{unit}:\n\n{}", output::sheet(&sheet))
    };
    tables.into_iter().map(table).collect::<Vec<String>>().join("\n\n")
}

fn orders(validation: &Validation) -> String {
    let rows = validation.orders.iter().map(|row| {
        let order = match row.order {
            Order::Right => "right",
            Order::Slight => "slight",
            Order::Unproven => "not proven",
            Order::Wrong => "WRONG",
            Order::Uncertain => "uncertain",
        };
        let cells = vec![
            row.case.clone(),
            row.vm.clone(),
            row.variant_a.clone(),
            row.variant_b.clone(),
            order.to_owned(),
            format!("{:.3}", row.published_ratio),
            format!("{:.3}", row.predicted_ratio),
            format!("{:.2}", row.predicted_ratio / row.published_ratio),
        ];
        (row.experiment.clone(), cells)
    });
    by_experiment("case | guest | A | B | order | published | predicted | size", 5, rows)
}

fn levels(validation: &Validation) -> String {
    let spread = |mean: String, sd: Option<f64>| sd.map_or(mean.clone(), |sd| format!("{mean} ± {}", number(sd)));
    let rows = validation.rows.iter().map(|row| {
        let inside = match (row.calibrate, row.inside_spread) {
            (true, _) => "calibrated".to_owned(),
            (false, Some(true)) if row.spread_below_mean => "yes".to_owned(),
            (false, Some(true)) => "(yes)".to_owned(),
            (false, Some(false)) => "NO".to_owned(),
            (false, None) => dash(row.single, |single| format!("{} of {}", single.below, single.runs)),
        };
        let cells = vec![
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            row.unit.clone(),
            inside,
            spread(number(row.published), row.published_sd),
            spread(optional(row.predicted), row.predicted_sd),
            dash(row.ratio, |ratio| format!("{ratio:.2}")),
        ];
        (row.experiment.clone(), cells)
    });
    by_experiment(
        "case | variant | guest | unit | inside | published | predicted | ratio",
        5,
        rows,
    )
}

fn summary(validation: &Validation) -> String {
    let of = validation.summary();
    [
        format!(
            "- {} of {} orders of variants are right; of these, {} have a size within {SIZE} times the published one.\n\
             - {} further pairs are not judged, since their published figures prove no difference.",
            of.ordered, of.orders, of.sized, of.uncertain
        ),
        format!(
            "- {} of the published effects are larger than {LARGE} times: {} orders right, {} of them in size too.",
            of.large, of.large_ordered, of.large_sized
        ),
        format!(
            "- {} predicted levels differ from the published ones by {} times in the median.\n- {} of {} levels with a \
             useful published standard deviation are within it.",
            of.levels,
            dash(of.level, |level| format!("{level:.2}")),
            of.inside,
            of.spreads
        ),
        if of.singles == 0 {
            String::new()
        } else {
            format!(
                "- {} of {} published single runs lie among the predicted runs.",
                of.among, of.singles
            )
        },
        format!(
            "- {} parameters were calibrated on {} further rows.",
            validation.fitted.len(),
            of.calibrated
        ),
    ]
    .into_iter()
    .filter(|line| !line.is_empty())
    .chain(
        validation
            .fitted
            .iter()
            .map(|(experiment, parameter)| format!("  - {experiment}: {parameter}")),
    )
    .collect::<Vec<_>>()
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_shows_what_its_figures_are() {
        let read = |name: &str| {
            let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let validation: Validation = serde_json::from_str(&read("validation.json")).expect("a validation");
        assert_eq!(validation.schema, validate::SCHEMA);
        assert!(
            read("validation.md").contains(&shown(&validation)),
            "docs/validation.md is not what `holdfast validate` prints for docs/validation.json:\n{}",
            shown(&validation)
        );
        let wide = |line: &&str| line.chars().count() > output::WIDTH;
        assert_eq!(shown(&validation).lines().find(wide), None, "all lines fit a terminal");
    }
}
