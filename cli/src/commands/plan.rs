//! `holdfast plan`.

use holdfast_lab::units::{self, Cache, Header, Needed, Unit, Units};

use crate::Done;
use crate::args::{PlanCommandArgs, PlanFormat};
use crate::error::Result;
use crate::experiment;
use crate::extended;
use crate::output::{self, dash, number};

/// Lists the units of an experiment.
pub fn plan(args: &PlanCommandArgs) -> Result<Done> {
    let options = experiment::options(&args.experiment, &args.plan, &args.adaptive)?;
    let plan = experiment::plan(&args.experiment, &options)?;
    let units = Units::new(plan, &args.experiment, extended::build());
    let cache = args.cache.as_deref().map(Cache::at);
    let needed = units::needed(&units, cache.as_ref());
    let listed = if args.missing { &needed.missing } else { &needed.all };
    match args.format {
        PlanFormat::Jsonl => lines(&units, cache.as_ref(), listed)?,
        PlanFormat::Table => table(&units, cache.as_ref(), &needed, args.missing)?,
    }
    Ok(Done::Whole)
}

/// Prints the line of the plan, and one for each of the `listed` units.
fn lines(units: &Units, cache: Option<&Cache>, listed: &[usize]) -> Result<()> {
    let cells = units.plan.cells.len();
    let predicted: Vec<Option<f64>> = match cache {
        Some(cache) => units.ids[..cells].iter().map(|id| cache.predicted_s(*id)).collect(),
        None => vec![None; cells],
    };
    let mut text = Header::of(units).line();
    for index in listed {
        let unit = Unit {
            predicted_s: predicted[index % cells],
            cached: cache.is_some_and(|cache| cache.has(units.ids[*index])),
            ..Unit::of(units, *index)
        };
        text.push_str(&unit.line());
        if text.len() > 1 << 20 {
            output::raw(&text)?;
            text.clear();
        }
    }
    output::raw(&text)
}

/// Prints a row for each cell.
fn table(units: &Units, cache: Option<&Cache>, needed: &Needed, only_missing: bool) -> Result<()> {
    let plan = &units.plan;
    let cells = plan.cells.len();
    let mut table = output::table(
        "case | variant | units | cached | CPU time of a unit, s".split(" | "),
        2,
    );
    let mut counts = vec![(0_usize, 0_usize); cells];
    needed.all.iter().for_each(|index| counts[index % cells].0 += 1);
    needed.missing.iter().for_each(|index| counts[index % cells].1 += 1);
    for (index, (cell, (count, missing))) in plan.cells.iter().zip(counts).enumerate() {
        if only_missing && missing == 0 {
            continue;
        }
        let predicted = cache.and_then(|cache| cache.predicted_s(units.ids[index]));
        table.add_row([
            cell.case.clone(),
            cell.variant.clone(),
            count.to_string(),
            (count - missing).to_string(),
            dash(predicted, number),
        ]);
    }
    output::line(&table.to_string())?;
    output::line(&format!(
        "\n{}: {} units, {} to run, scale {}, build {}",
        plan.experiment.name,
        needed.all.len(),
        needed.missing.len(),
        plan.scale,
        extended::build().id
    ))
}
