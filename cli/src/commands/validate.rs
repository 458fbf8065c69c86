//! `holdfast validate`.

use holdfast_lab::plan::Options;
use holdfast_lab::results::path_in;
use holdfast_lab::shipped::{self, EXPERIMENTS};
use holdfast_lab::validate::{self, Order, Validation};

use super::run::finish;
use crate::Done;
use crate::args::{Against, Format, ValidateArgs};
use crate::experiment;
use crate::output::{self, dash, number, optional};
use crate::refused::Refused;

/// Compares predictions with published figures.
pub fn validate(args: &ValidateArgs) -> anyhow::Result<Done> {
    check_options(args)?;
    match args.against {
        Against::Published => {}
        Against::Threads | Against::Kvm => return super::real_host::validate(args),
    }
    let mut names: Vec<&str> = args.experiments.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = experiment::names(EXPERIMENTS).collect();
    }
    if let Some(name) = names.iter().find(|name| shipped::find(EXPERIMENTS, name).is_none()) {
        return Err(Refused::among(name, experiment::names(EXPERIMENTS)).into());
    }
    if let Some(folder) = &args.out {
        for name in &names {
            output::check(Some(&path_in(folder, name)))?;
        }
    }
    let options = Options {
        seeds: args.seeds,
        scale: args.scale,
        ..Options::default()
    };
    let mut all = Vec::new();
    let mut done = Done::Whole;
    let mut written = Ok(());
    for name in names {
        let results = experiment::results(name, &options, args.jobs.count(), true)?;
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
            break;
        }
    }
    let validation = validate::validate(&all);
    match args.format {
        Format::Json => output::json(&validation)?,
        Format::Table => print(&validation)?,
    }
    written?;
    Ok(done)
}

/// Refuses options that have no effect.
fn check_options(args: &ValidateArgs) -> Result<(), Refused> {
    let of_real_host = [
        ("--profile", args.profile.is_some()),
        ("--locks", !args.locks.is_empty()),
        ("--contenders", !args.contenders.is_empty()),
        ("--sections", !args.sections.is_empty()),
    ];
    let of_published = [
        ("an experiment", !args.experiments.is_empty()),
        ("--scale", args.scale.is_some()),
        ("--jobs", args.jobs.jobs.is_some()),
    ];
    let (idle, with) = match args.against {
        Against::Published => (&of_real_host[..], "--against threads or kvm"),
        Against::Threads | Against::Kvm => (&of_published[..], "--against published"),
    };
    match idle.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Refused::misplaced(option, with)),
        None => Ok(()),
    }
}

fn print(validation: &Validation) -> anyhow::Result<()> {
    let header = "experiment | case | variant | guest | unit | predicted | sd | published | sd | ratio | inside";
    let mut table = output::table(header.split(" | "), 5);
    for row in &validation.rows {
        let inside = match (row.calibrate, row.inside_spread) {
            (true, _) => "calibrated",
            (false, Some(true)) if row.spread_below_mean => "yes",
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
            dash(row.ratio, |ratio| format!("{ratio:.2}")),
            inside.to_owned(),
        ]);
    }
    output::line(&table.to_string())?;
    output::line(
        "\nInside: within one published standard deviation of the published mean. Brackets: that deviation is not below the \
         mean, so the check is weak.\n",
    )?;
    let header = "experiment | case | guest | A | B | published B/A | predicted B/A | order";
    let mut table = output::table(header.split(" | "), 5);
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
    let checkable = || {
        validation
            .rows
            .iter()
            .filter(|row| !row.calibrate && row.spread_below_mean)
    };
    let inside = checkable().filter(|row| row.inside_spread == Some(true)).count();
    let right = validation.orders.iter().filter(|row| row.order == Order::Right).count();
    format!(
        "\n{inside} of {} predictions are within a published standard deviation that is below its mean. {right} of {} orders \
         of variants are right in direction and size.",
        checkable().count(),
        validation.orders.len()
    )
}
