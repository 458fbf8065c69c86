//! `holdfast plan`.

use holdfast_lab::units::{Cache, Header, Unit, Units};

use crate::Done;
use crate::args::{BUILD, PlanCommandArgs, PlanFormat};
use crate::experiment;
use crate::output::{self, dash, number};

/// Lists the units of an experiment.
pub fn plan(args: &PlanCommandArgs) -> anyhow::Result<Done> {
    let plan = experiment::plan(&args.experiment, &args.plan.options())?;
    let units = Units::new(plan, &args.experiment, BUILD);
    let cache = args.cache.as_deref().map(Cache::at);
    match args.format {
        PlanFormat::Jsonl => lines(&units, cache.as_ref(), args.missing)?,
        PlanFormat::Table => table(&units, cache.as_ref(), args.missing)?,
    }
    Ok(Done::Whole)
}

/// Prints the line of the plan, and one for each unit, or only for those that are not in `cache`.
fn lines(units: &Units, cache: Option<&Cache>, only_missing: bool) -> anyhow::Result<()> {
    let cells = units.plan.cells.len();
    let predicted: Vec<Option<f64>> = match cache {
        Some(cache) => units.ids[..cells].iter().map(|id| cache.predicted_s(*id)).collect(),
        None => vec![None; cells],
    };
    let mut text = Header::of(units).line();
    for (index, id) in units.ids.iter().enumerate() {
        let cached = cache.is_some_and(|cache| cache.has(*id));
        if cached && only_missing {
            continue;
        }
        let unit = Unit {
            predicted_s: predicted[index % cells],
            cached,
            ..Unit::of(units, index)
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
fn table(units: &Units, cache: Option<&Cache>, only_missing: bool) -> anyhow::Result<()> {
    let plan = &units.plan;
    let cells = plan.cells.len();
    let mut table = output::table(
        "case | variant | units | cached | CPU time of a unit, s".split(" | "),
        2,
    );
    let mut left = 0;
    for (index, cell) in plan.cells.iter().enumerate() {
        let ids = units.ids.iter().skip(index).step_by(cells);
        let cached = cache.map_or(0, |cache| ids.filter(|id| cache.has(**id)).count());
        left += plan.seeds.len() - cached;
        if only_missing && cached == plan.seeds.len() {
            continue;
        }
        let predicted = cache.and_then(|cache| cache.predicted_s(units.ids[index]));
        table.add_row([
            cell.case.clone(),
            cell.variant.clone(),
            plan.seeds.len().to_string(),
            cached.to_string(),
            dash(predicted, number),
        ]);
    }
    output::line(&table.to_string())?;
    output::line(&format!(
        "\n{}: {} units, {left} to run, scale {}, build {}",
        plan.experiment.name,
        plan.runs(),
        plan.scale,
        BUILD.id
    ))
}
