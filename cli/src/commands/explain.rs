//! `holdfast explain`.

use std::path::Path;

use comfy_table::CellAlignment;
use holdfast_lab::display::{HOST_FIGURES, host_figures};
use holdfast_lab::explain::{self, Explanation, KEY_COUNTERS, KEY_HOST_COUNTERS, Row};
use holdfast_lab::results::{self, Results};

use super::run::finish;
use crate::Done;
use crate::args::{ExplainArgs, Format};
use crate::experiment;
use crate::output::{self, number, percent};
use crate::refused::Refused;

/// Shows where the time went.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<Done> {
    let (results, done) = load(args)?;
    let explanation = explain::explain(&results);
    if args.format == Format::Json {
        output::json(&explanation)?;
        return Ok(done);
    }
    let title = if explanation.of_real_host {
        "what a real host knows about the vCPUs' time"
    } else {
        "where the vCPUs' time went, in percent"
    };
    output::line(&format!("{}: {title}", explanation.experiment))?;
    if explanation.of_real_host {
        output::line(&format!("measured on {}\n\n{NOT_KNOWN}", results.machine))?;
    }
    let mut cases: Vec<&str> = explanation.rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    for case in cases {
        let shown = |row: &&Row| row.case == case && (row.measured || args.all);
        let rows: Vec<&Row> = explanation.rows.iter().filter(shown).collect();
        output::line(&format!("\n{case}\n"))?;
        if explanation.of_real_host {
            output::line(&told(&rows))?;
            output::line(&counters(&rows, &KEY_HOST_COUNTERS, args.counters))?;
        } else {
            output::line(&shares(&rows))?;
            output::line(&counters(&rows, &KEY_COUNTERS, args.counters))?;
        }
    }
    if explanation.of_real_host {
        output::line(
            "\nTimes of the vCPUs' threads from start to end, including the boot; mean of the runs. Ran: in the guest, in exits, or \
             polling\nbefore a halt. Ready: preempted, or woken and not yet running.",
        )?;
    } else {
        convoys(&explanation)?;
    }
    Ok(done)
}

/// What cannot be seen from outside a guest.
const NOT_KNOWN: &str = "\
Not known: how much of the time was work, critical sections or spinning; which vCPU held or wanted a lock when it lost its CPU;
whether there was a convoy. A real host cannot see these. `holdfast run` of the same experiment shows them for simulated guests.";

/// Returns the table of the accounts of the vCPUs' threads.
fn told(rows: &[&Row]) -> String {
    let heads = heads(rows);
    let mut header = vec!["vCPUs' threads"];
    header.extend(heads.iter().map(String::as_str));
    let mut table = output::table(&header, 1);
    for (index, name) in HOST_FIGURES.into_iter().enumerate() {
        let cell = |row: &&Row| {
            row.host_told
                .as_ref()
                .map_or_else(|| "-".to_owned(), |told| host_figures(told)[index].clone())
        };
        table.add_row(std::iter::once(name.to_owned()).chain(rows.iter().map(cell)));
    }
    table.to_string()
}

/// Returns results from a file, or from a run.
fn load(args: &ExplainArgs) -> anyhow::Result<(Results, Done)> {
    if experiment::is_results(&args.results) {
        if args.plan.is_given() {
            let options = "options of a run together with a result file";
            return Err(Refused::misplaced(options, "an experiment, which is then run").into());
        }
        return Ok((results::read(Path::new(&args.results))?, Done::Whole));
    }
    let results = experiment::results(&args.results, &args.plan.options(), args.plan.jobs.count())?;
    let done = finish(&results);
    Ok((results, done))
}

/// Returns the column heads: variant and guest.
fn heads(rows: &[&Row]) -> Vec<String> {
    rows.iter().map(|row| format!("{} {}", row.variant, row.vm)).collect()
}

fn shares(rows: &[&Row]) -> String {
    let heads = heads(rows);
    let mut header = vec!["cause"];
    header.extend(heads.iter().map(String::as_str));
    let mut table = output::table(&header, 1);
    // Causes by their largest share in this case: the largest is on top.
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

/// Returns the table of the counters named in `chosen`, or of all counters.
fn counters(rows: &[&Row], chosen: &[&str], all: bool) -> String {
    let heads = heads(rows);
    let mut header = vec!["per run"];
    header.extend(heads.iter().map(String::as_str));
    let mut table = output::table(&header, 1);
    for name in explain::counter_names(rows)
        .into_iter()
        .filter(|name| all || chosen.contains(name))
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
        "\nMinimum / median / maximum over the runs. Convoy: a time in which the guest's vCPUs spin longer behind vCPUs that are \
         not running than they work.\nSpun per work: the same ratio over the whole run. Stall: a time in which no vCPU of the \
         guest works or runs with a lock. The host's scheduling period is {period} ms."
    ))
}
