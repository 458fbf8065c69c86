//! `holdfast explain`.

use std::path::Path;

use comfy_table::CellAlignment;
use holdfast_lab::display::{HOST_FIGURES, host_figures, number};
use holdfast_lab::explain::{self, Explanation, KEY_COUNTERS, KEY_HOST_COUNTERS, Row, worth_a_trace};
use holdfast_lab::results::{self, Results};

use super::run::{finish, warn};
use crate::Done;
use crate::args::{ExplainArgs, Format};
use crate::error::Result;
use crate::experiment;
use crate::output::{self, dash, optional, percent};
use crate::refused::Refused;

/// Shows where the time went.
pub fn explain(args: &ExplainArgs) -> Result<Done> {
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
            output::line(&accounts(&rows))?;
            output::line(&counters(&rows, &KEY_HOST_COUNTERS, args.counters))?;
            output::line(&blocked(&rows))?;
        } else {
            output::line(&shares(&rows))?;
            output::line(&counters(&rows, &KEY_COUNTERS, args.counters))?;
            output::line(&locks(&rows))?;
            output::line(&blocked(&rows))?;
            if args.by_seed {
                output::line(&seeds(&rows))?;
            }
        }
    }
    if explanation.of_real_host {
        output::line(
            "\nTimes of the vCPUs' threads from start to end, including the boot; mean of the runs. Ran: in the guest, in exits, or \
             polling\nbefore a halt. Ready: preempted, or woken and not yet running.",
        )?;
    } else {
        convoys(&explanation)?;
        halts(&explanation)?;
    }
    Ok(done)
}

/// What cannot be seen from outside a guest.
const NOT_KNOWN: &str = "\
Not known: how much of the time was work, critical sections or spinning; which vCPU held or wanted a lock when it lost its CPU;
whether there was a convoy. A real host cannot see these. `holdfast run` of the same experiment shows them for simulated guests.";

/// Returns the heads of a table's columns, a guest's each.
fn heads(rows: &[&Row]) -> impl Iterator<Item = String> {
    rows.iter().map(|row| format!("{} {}", row.variant, row.vm))
}

/// Returns a table with the guests as columns. Each line has a name and its `cell` for each guest.
/// `corner`: head of the names.
fn by_guest<'n>(
    corner: &str,
    rows: &[&Row],
    names: impl IntoIterator<Item = &'n str>,
    cell: impl Fn(&str, &Row) -> String,
) -> String {
    let mut table = output::table(std::iter::once(corner.to_owned()).chain(heads(rows)), 1);
    for name in names {
        let cells = rows.iter().map(|row| cell(name, row));
        table.add_row(std::iter::once(name.to_owned()).chain(cells));
    }
    table.to_string()
}

/// Returns the table of the accounts of the vCPUs' threads.
fn accounts(rows: &[&Row]) -> String {
    by_guest("vCPUs' threads", rows, HOST_FIGURES, |name, row| {
        let index = HOST_FIGURES.iter().position(|known| *known == name);
        let figures = row.host_figures.as_ref().map(host_figures).zip(index);
        dash(figures, |(figures, index)| figures[index].clone())
    })
}

/// Returns results from a file, or from a run.
fn load(args: &ExplainArgs) -> Result<(Results, Done)> {
    if experiment::is_results(&args.results) {
        if args.plan.is_given() {
            let options = "options of a run together with a result file";
            return Err(Refused::misplaced(options, "an experiment, which is then run").into());
        }
        let results = results::read(Path::new(&args.results))?;
        warn(&results);
        return Ok((results, Done::Whole));
    }
    let plan = &args.plan;
    let results = experiment::results(&args.results, &plan.options(), plan.jobs.count(), plan.yes)?;
    let done = finish(&results);
    Ok((results, done))
}

fn value(values: &[(String, f64)], name: &str) -> Option<f64> {
    values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

fn shares(rows: &[&Row]) -> String {
    // Causes by their largest share in this case: the largest is on top.
    let mut causes: Vec<(&str, f64)> = Vec::new();
    for (cause, share) in rows.iter().flat_map(|row| &row.lost_time) {
        match causes.iter_mut().find(|(known, _)| known == cause) {
            Some((_, largest)) => *largest = largest.max(*share),
            None => causes.push((cause, *share)),
        }
    }
    causes.retain(|(_, largest)| *largest > 0.0);
    causes.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let causes = causes.iter().map(|(cause, _)| *cause);
    by_guest("cause", rows, causes, |cause, row| {
        percent(value(&row.lost_time, cause).unwrap_or(0.0))
    })
}

/// Returns the table of the counters named in `chosen`, or of all counters.
fn counters(rows: &[&Row], chosen: &[&str], all: bool) -> String {
    let mut names = explain::counter_names(rows);
    names.retain(|name| all || chosen.contains(name));
    let table = by_guest("per run", rows, names, |name, row| optional(value(&row.counters, name)));
    format!("\n{table}")
}

/// Number of lock classes that the table shows.
const LOCKS_MAX: usize = 8;

/// Returns the table of the locks that were waited for most.
fn locks(rows: &[&Row]) -> String {
    let mut classes: Vec<(&str, f64)> = Vec::new();
    for lock in rows
        .iter()
        .flat_map(|row| &row.locks)
        .filter(|lock| lock.contended > 0.0)
    {
        match classes.iter_mut().find(|(class, _)| *class == lock.class) {
            Some((_, most)) => *most = most.max(lock.contended),
            None => classes.push((&lock.class, lock.contended)),
        }
    }
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes.truncate(LOCKS_MAX);
    if classes.is_empty() {
        return String::new();
    }
    let classes = classes.iter().map(|(class, _)| *class);
    let table = by_guest("waits per run, of acquisitions, time", rows, classes, |class, row| {
        let lock = row.locks.iter().find(|lock| lock.class == class);
        dash(lock.filter(|lock| lock.acquired > 0.0), |lock| {
            format!(
                "{} ({} %, {} ms)",
                number(lock.contended),
                percent(lock.contended / lock.acquired),
                number(lock.waited_ns / 1e6)
            )
        })
    });
    format!("\n{table}")
}

/// Returns the histogram of the times for which waiters were halted for a lock, or nothing if none halted.
fn blocked(rows: &[&Row]) -> String {
    let lines = explain::blocked_lines(rows);
    if lines.is_empty() {
        return String::new();
    }
    let mut table = output::table(
        std::iter::once("halted for a lock, from ns".to_owned()).chain(heads(rows)),
        1,
    );
    for (from_ns, halts) in lines {
        let cells = halts.into_iter().map(|halts| dash(halts, number));
        table.add_row(std::iter::once(from_ns.to_string()).chain(cells));
    }
    format!("\n{table}")
}

/// Returns the table of the runs, with the seed that is worth a trace marked.
fn seeds(rows: &[&Row]) -> String {
    let header = "variant | guest | seed | result | convoys, % | spun per work | longest stall, ms";
    let mut table = output::table(header.split(" | "), 2);
    for row in rows {
        let marked = worth_a_trace(&row.seeds);
        for run in &row.seeds {
            table.add_row([
                row.variant.clone(),
                row.vm.clone(),
                format!("{}{}", if marked == Some(run.seed) { "* " } else { "" }, run.seed),
                number(run.sample),
                format!("{:.0}", run.convoy_share * 100.0),
                format!("{:.2}", run.spun_per_work),
                format!("{:.1}", run.stall_ns as f64 / 1e6),
            ]);
        }
    }
    format!(
        "\n{table}\n* The seed to trace first: `holdfast trace EXPERIMENT --case CASE --variant VARIANT --seed SEED`"
    )
}

/// Prints the table of halts for locks, if some guest has any.
fn halts(explanation: &Explanation) -> Result<()> {
    let found = explanation.rows.iter().filter_map(|row| Some((row, row.halts?)));
    let found: Vec<_> = found.filter(|(_, halts)| halts.share > 0.0).collect();
    if found.is_empty() {
        return Ok(());
    }
    let header = "case | variant | guest | halted, % | halted per work | woken, % | verdict";
    let mut table = output::table(header.split(" | "), 3);
    if let Some(verdict) = table.column_mut(6) {
        verdict.set_cell_alignment(CellAlignment::Left);
    }
    for (row, halts) in found {
        table.add_row([
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            percent(halts.share),
            format!("{:.2}", halts.per_work),
            percent(halts.woken_share),
            halts.verdict().to_owned(),
        ]);
    }
    output::line(&format!(
        "\nHalted for locks\n\n{table}\n\nHalted: from HLT until a lock's holder kicks. The pCPU is free for other \
         vCPUs meanwhile. Woken: from a kick or another wakeup until the vCPU has a pCPU."
    ))
}

fn convoys(explanation: &Explanation) -> Result<()> {
    let milliseconds = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
    output::line("\nConvoys\n")?;
    let header =
        "case | variant | guest | convoys | share of run, % | spun per work | stalls, ms | trace seed | verdict";
    let mut table = output::table(header.split(" | "), 3);
    if let Some(verdict) = table.column_mut(8) {
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
            dash(worth_a_trace(&row.seeds), |seed| seed.to_string()),
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
        "\nMinimum / median / maximum over the runs. Convoy: a time in which the guest's vCPUs spin longer behind \
         vCPUs that are not running than they work.\nSpun per work: the same ratio over the whole run. Stall: a time in \
         which no vCPU of the guest works or runs with a lock. The host's scheduling period is {period} ms. Trace seed: \
         the run that shows most of it; `--by-seed` shows all."
    ))
}
