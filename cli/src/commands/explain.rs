//! `holdfast explain`.

use std::path::Path;

use comfy_table::CellAlignment;
use holdfast_lab::explain::{self, Explanation, Row, TELLING};
use holdfast_lab::results::{self, Results};

use super::run::finish;
use crate::Done;
use crate::args::{ExplainArgs, Format};
use crate::experiment;
use crate::output::{self, number, percent};

/// Shows where the time went.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<Done> {
    let (results, done) = load(args)?;
    let explanation = explain::explain(&results);
    if args.format == Format::Json {
        output::json(&explanation)?;
        return Ok(done);
    }
    output::line(&format!(
        "{}: where the vCPUs' time went, per cent",
        explanation.experiment
    ))?;
    let mut cases: Vec<&str> = explanation.rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    for case in cases {
        let shown = |row: &&Row| row.case == case && (row.measured || args.all);
        let rows: Vec<&Row> = explanation.rows.iter().filter(shown).collect();
        output::line(&format!("\n{case}\n"))?;
        output::line(&shares(&rows))?;
        output::line(&counters(&rows, args.counters))?;
    }
    convoys(&explanation)?;
    Ok(done)
}

/// Results from a file, or from a run.
fn load(args: &ExplainArgs) -> anyhow::Result<(Results, Done)> {
    let is_results = args.results.ends_with(".json") && Path::new(&args.results).exists();
    if is_results {
        return Ok((results::read(Path::new(&args.results))?, Done::Whole));
    }
    let results = experiment::results(&args.results, &args.plan.options(), args.plan.jobs.count())?;
    let done = finish(&results);
    Ok((results, done))
}

/// Column heads: variant and guest.
fn heads(rows: &[&Row]) -> Vec<String> {
    rows.iter().map(|row| format!("{} {}", row.variant, row.vm)).collect()
}

fn shares(rows: &[&Row]) -> String {
    let heads = heads(rows);
    let mut header = vec!["cause"];
    header.extend(heads.iter().map(String::as_str));
    let mut table = output::table(&header, 1);
    // Causes by their largest share in this case: what matters stands on top.
    let mut causes: Vec<(&str, f64)> = Vec::new();
    for (cause, share) in rows.iter().flat_map(|row| &row.lost_time) {
        match causes.iter_mut().find(|(known, _)| known == cause) {
            Some((_, largest)) => *largest = largest.max(*share),
            None => causes.push((cause, *share)),
        }
    }
    causes.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    for (cause, _) in causes.into_iter().filter(|(_, largest)| *largest > 0.0) {
        let share = |row: &&Row| {
            row.lost_time
                .iter()
                .find(|(name, _)| name == cause)
                .map_or(0.0, |(_, share)| *share)
        };
        let cells = rows.iter().map(|row| percent(share(row)));
        table.add_row(std::iter::once(cause.to_owned()).chain(cells));
    }
    table.to_string()
}

fn counters(rows: &[&Row], all: bool) -> String {
    let heads = heads(rows);
    let mut header = vec!["per run"];
    header.extend(heads.iter().map(String::as_str));
    let mut table = output::table(&header, 1);
    for name in explain::counter_names(rows)
        .into_iter()
        .filter(|name| all || TELLING.contains(name))
    {
        let value = |row: &&Row| {
            row.counters
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| *value)
        };
        let cells = rows.iter().map(|row| value(row).map_or_else(|| "-".to_owned(), number));
        table.add_row(std::iter::once(name.to_owned()).chain(cells));
    }
    format!("\n{table}")
}

fn convoys(explanation: &Explanation) -> anyhow::Result<()> {
    let milliseconds = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
    output::line("\nConvoys\n")?;
    let header = [
        "case",
        "variant",
        "guest",
        "convoys",
        "share of run, %",
        "spun per work",
        "stalls, ms",
        "verdict",
    ];
    let mut table = output::table(&header, 3);
    if let Some(verdict) = table.column_mut(7) {
        verdict.set_cell_alignment(CellAlignment::Left);
    }
    let three = |values: [String; 3]| values.join(" / ");
    for row in &explanation.rows {
        let Some(found) = row.convoys else { continue };
        table.add_row([
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            format!("{} of {}", found.convoys, found.runs),
            three(found.shares.map(|share| format!("{:.0}", share * 100.0))),
            three(found.spun_per_work.map(|ratio| format!("{ratio:.2}"))),
            three(found.stalls_ns.map(milliseconds)),
            found.verdict().to_owned(),
        ]);
    }
    output::line(&table.to_string())?;
    let periods = explanation
        .rows
        .iter()
        .filter_map(|row| row.convoys)
        .map(|found| found.period_ns);
    let period = milliseconds(periods.max().unwrap_or_default());
    output::line(&format!(
        "\nLeast / median / most of the runs. Convoy: a time in which the guest's vCPUs spin longer behind vCPUs that are not \
         running than they work.\nSpun per work: the same over the whole run. Stall: nobody in the guest works, or runs while \
         holding a lock; the host's scheduling period is {period} ms."
    ))
}
