//! `holdfast validate`.

use holdfast_lab::plan::Options;
use holdfast_lab::shipped::{self, EXPERIMENTS};
use holdfast_lab::validate::{self, Order, Validation};

use super::run::finish;
use crate::Done;
use crate::args::{Against, Format, ValidateArgs};
use crate::experiment::{self, Unknown};
use crate::output::{self, number, optional};

/// Sets predicted beside published figures.
pub fn validate(args: &ValidateArgs) -> anyhow::Result<Done> {
    match args.against {
        Against::Published => {}
        Against::Threads | Against::Kvm => return super::reality::check(args),
    }
    let mut names: Vec<&str> = args.experiments.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = EXPERIMENTS.iter().map(|shipped| shipped.name).collect();
    }
    if let Some(name) = names.iter().find(|name| shipped::find(EXPERIMENTS, name).is_none()) {
        return Err(Unknown::nothing_shipped(name).into());
    }
    let options = Options {
        seeds: args.seeds,
        scale: args.scale,
        ..Options::default()
    };
    let mut all = Vec::new();
    let mut done = Done::Whole;
    for name in names {
        let results = experiment::results(name, &options, args.jobs.count())?;
        if finish(&results) == Done::Failed {
            done = Done::Failed;
        }
        if let Some(folder) = &args.out {
            eprintln!("results: {}", results.write(folder)?.display());
        }
        let complete = results.complete;
        all.push(results);
        if !complete {
            break;
        }
    }
    let validation = validate::validate(&all);
    match args.format {
        Format::Json => output::json(&validation)?,
        Format::Table => print(&validation)?,
    }
    Ok(done)
}

fn print(validation: &Validation) -> anyhow::Result<()> {
    let header = [
        "experiment",
        "case",
        "variant",
        "guest",
        "unit",
        "predicted",
        "sd",
        "published",
        "sd",
        "ratio",
        "inside",
    ];
    let mut table = output::table(&header, 5);
    for row in &validation.rows {
        let inside = match (row.calibrate, row.inside_spread) {
            (true, _) => "calibrated",
            (false, Some(true)) if row.spread_is_telling => "yes",
            (false, Some(true)) => "(yes)",
            (false, Some(false)) => "NO",
            (false, None) => "-",
        };
        table.add_row([
            row.experiment.clone(),
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            row.unit.clone(),
            optional(row.predicted),
            optional(row.predicted_sd),
            number(row.published),
            optional(row.published_sd),
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            inside.to_owned(),
        ]);
    }
    output::line(&table.to_string())?;
    output::line(
        "\nInside: within one published standard deviation of the published mean; in brackets where that is wider than the \
         mean itself and so says little.\n",
    )?;
    let header = [
        "experiment",
        "case",
        "guest",
        "A",
        "B",
        "published B/A",
        "predicted B/A",
        "order",
    ];
    let mut table = output::table(&header, 5);
    for row in &validation.orders {
        table.add_row([
            row.experiment.clone(),
            row.case.clone(),
            row.vm.clone(),
            row.variant_a.clone(),
            row.variant_b.clone(),
            format!("{:.3}", row.published_ratio),
            format!("{:.3}", row.predicted_ratio),
            match row.order {
                Order::Right => "right".to_owned(),
                Order::Slight => "right, but slight".to_owned(),
                Order::Unproven => "not proven".to_owned(),
                Order::Wrong => "WRONG".to_owned(),
            },
        ]);
    }
    output::line(&table.to_string())?;
    output::line(&summary(validation))
}

fn summary(validation: &Validation) -> String {
    let telling = || {
        validation
            .rows
            .iter()
            .filter(|row| !row.calibrate && row.spread_is_telling)
    };
    let inside = telling().filter(|row| row.inside_spread == Some(true)).count();
    let right = validation.orders.iter().filter(|row| row.order == Order::Right).count();
    format!(
        "\n{inside} of {} predictions inside a published spread that is telling; {right} of {} orders of variants right, in \
         direction and size.",
        telling().count(),
        validation.orders.len()
    )
}
