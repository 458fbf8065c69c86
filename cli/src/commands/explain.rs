//! `holdfast explain`.

use std::path::Path;

use holdfast_lab::display::{HOST_FIGURES, SERVICES, host_figures, number};
use holdfast_lab::explain::{self, Explanation, KEY_COUNTERS, KEY_HOST_COUNTERS, Row, worth_a_trace};
use holdfast_lab::filter::Filter;
use holdfast_lab::operators;
use holdfast_lab::results::{self, Results};
use holdfast_lab::service;
use holdfast_lab::sheet::Sheet;

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
            output::line(&shares(&rows, args.all))?;
            let services = services(&rows);
            if !services.is_empty() {
                output::line(&services)?;
            }
            output::line(&operators(&rows, args.counters))?;
            let many = rows.len() > COLUMNS_MAX && !args.all;
            if !many || args.counters {
                output::line(&counters(&rows, &KEY_COUNTERS, args.counters))?;
            }
            if many {
                output::line(MORE)?;
            } else {
                output::line(&locks(&rows, args.all))?;
                output::line(&utilization(&rows, args.all))?;
                output::line(&blocked(&rows))?;
            }
            if args.by_seed {
                output::line(&seeds(&rows))?;
            }
        }
    }
    if explanation.of_real_host {
        output::line(&output::wrapped(
            "\nTimes of the vCPUs' threads from start to end, including the boot; mean of the runs. Ran: in the guest, \
             in exits, or polling before a halt. Ready: preempted, or woken and not yet running.",
        ))?;
    } else {
        convoys(&explanation, args.all)?;
        halts(&explanation, args.all)?;
    }
    Ok(done)
}

/// What is left out with many guests.
const MORE: &str = "
`--all` shows all causes, counters, locks and halts; --case, --variant and --guest choose some.";

/// What cannot be seen from outside a guest.
const NOT_KNOWN: &str = "\
Not known: how much of the time was work, critical sections or spinning; which vCPU held or wanted a
lock when it lost its CPU; whether there was a convoy. A real host cannot see these. `holdfast run` of
the same experiment shows them for simulated guests.";

/// Returns a table of guests and named figures. The guests are columns if they fit, and rows if they do not; then the
/// variants of one guest are below each other. `corner`: what the names are.
fn by_guest(corner: &str, rows: &[&Row], names: &[String], cell: impl Fn(usize, &Row) -> String) -> Sheet {
    if rows.len() <= COLUMNS_MAX {
        let columns = as_columns(corner, rows, names, &cell);
        if output::fits(&columns) {
            return columns;
        }
    }
    let mut guests: Vec<&str> = Vec::new();
    for row in rows {
        if !guests.contains(&row.vm.as_str()) {
            guests.push(&row.vm);
        }
    }
    // Words of a name can be in several lines.
    let heads = names.iter().map(|name| name.replace(['_', '.'], " "));
    let mut sheet = Sheet::new(["guest", "variant"].map(str::to_owned).into_iter().chain(heads), 2);
    for guest in guests {
        for row in rows.iter().filter(|row| row.vm == guest) {
            let cells = (0..names.len()).map(|index| cell(index, row));
            let names = [row.vm.clone(), row.variant.clone()];
            sheet.rows.push(names.into_iter().chain(cells).collect());
        }
    }
    sheet.without_one("guest")
}

/// Most guests that are columns of a table.
const COLUMNS_MAX: usize = 8;

/// Returns a table whose columns are the guests.
fn as_columns(corner: &str, rows: &[&Row], names: &[String], cell: impl Fn(usize, &Row) -> String) -> Sheet {
    let one = rows.windows(2).all(|pair| pair[0].vm == pair[1].vm);
    let head = |row: &&Row| match one {
        true => row.variant.clone(),
        false => format!("{} {}", row.variant, row.vm),
    };
    let mut sheet = Sheet::new(std::iter::once(corner.to_owned()).chain(rows.iter().map(head)), 1);
    for (index, name) in names.iter().enumerate() {
        let cells = rows.iter().map(|row| cell(index, row));
        sheet.rows.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    sheet
}

/// Returns a table of [`by_guest`] as text, with its name if the guests are its rows.
fn titled(corner: &str, sheet: &Sheet) -> String {
    match sheet.heads[0] == corner {
        true => output::sheet(sheet),
        false => format!("{corner}:\n\n{}", output::sheet(sheet)),
    }
}

/// Returns `names` as owned text.
fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the table of the accounts of the vCPUs' threads.
fn accounts(rows: &[&Row]) -> String {
    let sheet = by_guest("vCPUs' threads", rows, &owned(&HOST_FIGURES), |index, row| {
        let figures = row.host_figures.as_ref().map(host_figures);
        dash(figures, |figures| figures[index].clone())
    });
    titled("vCPUs' threads", &sheet)
}

/// Returns results from a file, or from a run.
fn load(args: &ExplainArgs) -> Result<(Results, Done)> {
    if experiment::is_results(&args.results) {
        if args.plan.is_given() {
            let options = "options of a run together with a result file";
            return Err(Refused::misplaced(options, "an experiment, which is then run").into());
        }
        let filter = Filter {
            cases: args.plan.selection.case.clone(),
            variants: args.plan.selection.variant.clone(),
            guests: args.guest.clone(),
        };
        let results = filter.of(results::read(Path::new(&args.results))?)?;
        warn(&results);
        return Ok((results, Done::Whole));
    }
    let plan = &args.plan;
    let results = experiment::results(&args.results, &plan.options(), plan.jobs.count(), plan.yes)?;
    let done = finish(&results);
    let filter = Filter {
        guests: args.guest.clone(),
        ..Filter::default()
    };
    Ok((filter.of(results)?, done))
}

fn value(values: &[(String, f64)], name: &str) -> Option<f64> {
    values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

/// Smallest share of a cause that has a row of its own.
const SHARE_MIN: f64 = 0.005;

/// Returns the table of shares. Causes that are small everywhere are summed, unless `all` are shown.
fn shares(rows: &[&Row], all: bool) -> String {
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
    let large = causes.iter().filter(|(_, largest)| *largest >= SHARE_MIN).count();
    // A sum of one cause would only hide its name.
    let mut count = if all || causes.len() <= large + 1 {
        causes.len()
    } else {
        large
    };
    loop {
        let (shown, small) = causes.split_at(count);
        let sheet = shares_of(rows, shown, small);
        // Many guests have room for the largest causes only.
        if all || count <= 1 || output::fits(&sheet) {
            return titled("cause", &sheet);
        }
        count -= 1;
    }
}

/// Returns the table of the shares of the causes that are `shown`, and of the sum of the `small` ones.
fn shares_of(rows: &[&Row], shown: &[(&str, f64)], small: &[(&str, f64)]) -> Sheet {
    let mut names: Vec<String> = shown.iter().map(|(cause, _)| (*cause).to_owned()).collect();
    if !small.is_empty() {
        names.push(format!("{} other causes", small.len()));
    }
    by_guest("cause", rows, &names, |index, row| {
        let share = |cause: &str| value(&row.lost_time, cause).unwrap_or(0.0);
        percent(match shown.get(index) {
            Some((cause, _)) => share(cause),
            None => small.iter().map(|(cause, _)| share(cause)).sum(),
        })
    })
}

/// Returns the table of what the users of the guests measure, or nothing if none counts operations.
fn services(rows: &[&Row]) -> String {
    let served: Vec<&Row> = rows.iter().copied().filter(|row| row.service.is_some()).collect();
    let names = service::names(served.iter().filter_map(|row| row.service.as_ref()));
    if names.is_empty() {
        return String::new();
    }
    let sheet = by_guest(SERVICES, &served, &names, |index, row| {
        let figures = row.service.as_ref();
        optional(figures.and_then(|figures| figures.figure(&names[index])))
    });
    format!("\n{}", titled(SERVICES, &sheet))
}

/// Returns the table of what operators measure; exits by kind only with `all`.
fn operators(rows: &[&Row], all: bool) -> String {
    let names = operators::names(rows.iter().filter_map(|row| row.operators.as_ref()), all);
    let sheet = by_guest("as operators measure", rows, &names, |index, row| {
        let figures = row.operators.as_ref();
        optional(figures.and_then(|figures| figures.figure(&names[index])))
    });
    format!("\n{}", titled("as operators measure", &sheet))
}

/// Returns the table of the counters named in `chosen`, or of all counters.
fn counters(rows: &[&Row], chosen: &[&str], all: bool) -> String {
    let mut names = explain::counter_names(rows);
    names.retain(|name| all || chosen.contains(name));
    let sheet = by_guest("per run", rows, &owned(&names), |index, row| {
        optional(value(&row.counters, names[index]))
    });
    format!("\n{}", titled("per run", &sheet))
}

/// Number of lock classes that the table shows.
const LOCKS_MAX: usize = 8;

/// Returns the table of the locks that were waited for most, or of `all`.
fn locks(rows: &[&Row], all: bool) -> String {
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
    classes.truncate(if all { classes.len() } else { LOCKS_MAX });
    if classes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = classes.iter().map(|(class, _)| (*class).to_owned()).collect();
    let corner = "waits per run, of acquisitions, time";
    let sheet = by_guest(corner, rows, &names, |index, row| {
        let lock = row.locks.iter().find(|lock| lock.class == names[index]);
        dash(lock.filter(|lock| lock.acquired > 0.0), |lock| {
            format!(
                "{} ({} %, {} ms)",
                number(lock.contended),
                percent(lock.contended / lock.acquired),
                number(lock.waited_ns / 1e6)
            )
        })
    });
    format!("\n{}", titled(corner, &sheet))
}

/// Smallest utilization of a lock class that the table shows, in percent.
const UTILIZATION_MIN: f64 = 0.5;

/// Returns the table of how much of the time locks are held and waited for: the classes that are used most, or `all`.
fn utilization(rows: &[&Row], all: bool) -> String {
    let mut classes: Vec<(&str, f64)> = Vec::new();
    for lock in rows.iter().flat_map(|row| &row.locks) {
        let Some(held) = lock.held_percent else {
            continue;
        };
        let most = held.max(lock.waited_percent.unwrap_or(0.0));
        match classes.iter_mut().find(|(class, _)| *class == lock.class) {
            Some((_, known)) => *known = known.max(most),
            None => classes.push((&lock.class, most)),
        }
    }
    classes.retain(|(_, most)| all || *most > UTILIZATION_MIN);
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    if classes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = classes.iter().map(|(class, _)| (*class).to_owned()).collect();
    let corner = "held, waited for, % of the time";
    let sheet = by_guest(corner, rows, &names, |index, row| {
        let lock = row.locks.iter().find(|lock| lock.class == names[index]);
        let shares = lock.and_then(|lock| lock.held_percent.zip(lock.waited_percent));
        dash(shares, |(held, waited)| format!("{held:.1}, {waited:.1}"))
    });
    let note =
        "Held: 100 % is one lock of the class that is always held. Waited for: 100 % is one CPU that always waits.";
    format!("\n{}\n{}", titled(corner, &sheet), output::wrapped(note))
}

/// Returns the histogram of the times for which waiters were halted for a lock, or nothing if none halted.
fn blocked(rows: &[&Row]) -> String {
    let lines = explain::blocked_lines(rows);
    if lines.is_empty() {
        return String::new();
    }
    let names: Vec<String> = lines.iter().map(|(from_ns, _)| from_ns.to_string()).collect();
    let corner = "halted for a lock, from ns";
    let sheet = by_guest(corner, rows, &names, |index, row| {
        let at = rows.iter().position(|other| std::ptr::eq(*other, row));
        dash(at.and_then(|at| lines[index].1[at]), number)
    });
    format!("\n{}", titled(corner, &sheet))
}

/// Returns the table of the runs, with the seed that is worth a trace marked.
fn seeds(rows: &[&Row]) -> String {
    let header = "variant | guest | seed | result | convoys, % | spun per work | longest stall, ms";
    let mut sheet = Sheet::new(header.split(" | "), 2);
    for row in rows {
        let marked = worth_a_trace(&row.seeds);
        for run in &row.seeds {
            sheet.rows.push(vec![
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
    let table = output::sheet(&sheet.without_one("guest"));
    format!(
        "\n{table}\n* The seed to trace first: `holdfast trace EXPERIMENT --case CASE --variant VARIANT --seed SEED`"
    )
}

/// Share of halts for locks from which on a guest is shown.
const HALTS_MIN: f64 = 0.005;

/// Prints the table of halts for locks, if some guest has any.
fn halts(explanation: &Explanation, all: bool) -> Result<()> {
    let found = explanation.rows.iter().filter_map(|row| Some((row, row.halts?)));
    let least = if all { 0.0 } else { HALTS_MIN };
    let found: Vec<_> = found.filter(|(_, halts)| halts.share > least).collect();
    if found.is_empty() {
        return Ok(());
    }
    let header = "case | variant | guest | verdict | halted, % | halted per work | woken, %";
    let mut sheet = Sheet::new(header.split(" | "), 4);
    for (row, halts) in found {
        sheet.rows.push(vec![
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            halts.verdict().to_owned(),
            percent(halts.share),
            format!("{:.2}", halts.per_work),
            percent(halts.woken_share),
        ]);
    }
    let table = output::sheet(&sheet.without_one("guest"));
    output::line(&format!("\nHalted for locks\n\n{table}\n"))?;
    output::line(&output::wrapped(
        "Halted: from HLT until a lock's holder kicks. The pCPU is free for other vCPUs meanwhile. Woken: from a kick \
         or another wakeup until the vCPU has a pCPU.",
    ))
}

/// Prints the table of convoys, of guests that have any or lose time behind preempted vCPUs, or of `all`.
fn convoys(explanation: &Explanation, all: bool) -> Result<()> {
    let milliseconds = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
    output::line("\nConvoys\n")?;
    let header =
        "case | variant | guest | verdict | convoys | share of run, % | spun per work | stalls, ms | trace seed";
    let mut sheet = Sheet::new(header.split(" | "), 4);
    let two = |[_, median, most]: [String; 3]| format!("{median} ({most})");
    let mut quiet = 0;
    for row in &explanation.rows {
        let Some(found) = row.convoys else { continue };
        if !all && found.is_none() {
            quiet += 1;
            continue;
        }
        sheet.rows.push(vec![
            row.case.clone(),
            row.variant.clone(),
            row.vm.clone(),
            found.verdict().to_owned(),
            format!("{} of {}", found.convoys, found.runs),
            two(found.shares.map(|share| format!("{:.0}", share * 100.0))),
            two(found.spun_per_work.map(|ratio| format!("{ratio:.2}"))),
            two(found.stalls_ns.map(milliseconds)),
            dash(worth_a_trace(&row.seeds), |seed| seed.to_string()),
        ]);
    }
    if sheet.rows.is_empty() {
        output::line("No guest had a convoy, or lost time behind preempted vCPUs.")?;
    } else {
        output::line(&output::sheet(&sheet.without_one("guest")))?;
        if quiet > 0 {
            output::line(&format!("No convoy in {quiet} other rows, which `--all` shows."))?;
        }
    }
    let periods = explanation
        .rows
        .iter()
        .filter_map(|row| row.convoys)
        .map(|found| found.period_ns);
    let period = milliseconds(periods.max().unwrap_or_default());
    output::line(&output::wrapped(&format!(
        "\nMedian over the runs, and in parentheses the most. Convoy: a time in which the guest's vCPUs spin longer \
         behind vCPUs that are not running than they work. Spun per work: the same ratio over the whole run. Stall: a \
         time in which no vCPU of the guest works or runs with a lock. The host's scheduling period is {period} ms. \
         Trace seed: the run that shows most of it; `--by-seed` shows all."
    )))
}
