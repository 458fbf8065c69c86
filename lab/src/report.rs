//! Renders a result file as one self-contained HTML page: no network, no script, no font.
//!
//! - **No foreign code is executed**: `maud` escapes every text of the results that is not marked otherwise, and the
//!   page's own policy forbids scripts and loading.
//! - **Readable everywhere**: charts have text of a fixed size and marks at shares of the width, so that they fit a
//!   phone. Colors follow the reader's light or dark setting. Color-blind readers can distinguish them.

mod chart;
mod drawing;
mod matrix;
mod share;
mod sweep;
mod tables;
mod words;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::display::{
    self, HOST_FIGURES, SERVICES_NOTE, TOTALS_NOTE, also_published, convoys_note, host_figures, kinds, number,
};
use crate::doubts;
use crate::explain::{self, Explanation, KEY_COUNTERS, KEY_HOST_COUNTERS, Row};
use crate::operators;
use crate::results::Results;
use crate::sheet::Sheet;
use tables::by_cell;
pub(crate) use tables::{foldable, grid};
pub(crate) use words::prose;

/// Style sheet of drawings, which is also a part of [`STYLE`].
const MARKS: &str = include_str!("report/marks.css");
/// Style sheet of pages.
const STYLE: &str = concat!(include_str!("report/marks.css"), include_str!("report/style.css"));
pub use drawing::{Drawing, drawings};
pub(crate) use drawing::{LABELS, PLOT, frame, legend_of};

/// Content policy: the page must not load or execute anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Returns the head of a page about `name` by this `version`.
pub(crate) fn head(name: &str, version: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="generator" content={ "holdfast " (version) };
            title { (name) " - holdfast" }
            style { (PreEscaped(STYLE)) }
        }
    }
}

/// Returns the page for `results`.
pub fn html(results: &Results) -> String {
    let explanation = explain::explain(results);
    let title = results.title.as_deref().unwrap_or(&results.experiment);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&results.experiment, &results.version))
            body {
                header {
                    p class="kicker" { "holdfast · " (results.experiment) }
                    h1 { (title) }
                    p class="facts" {
                        span { @if results.are_of_real_host() { "measured on " } @else { "machine " } b { (results.machine) } }
                        span { b { (results.seeds.len()) } " seeds" }
                        span { "scale " b { (results.scale) } }
                        span { "version " b { (results.version) } }
                    }
                }
                main {
                    (warnings(results))
                    (doubts(results))
                    (remarks(&explanation.remarks))
                    @if crate::sweep::keys(results).is_empty() {
                        (cells(results, &explanation))
                    } @else {
                        (sweep::sections(results))
                        section {
                            h2 { "Every cell" }
                            details {
                                summary { "Samples, tables, lost time, convoys and counters of each cell" }
                                (cells(results, &explanation))
                            }
                        }
                    }
                    (definition(results))
                    (provenance(results))
                }
            }
        }
    };
    page.into_string()
}

/// Renders what there is about each cell.
fn cells(results: &Results, explanation: &Explanation) -> Markup {
    html! {
        (matrix::summary(results))
        (chart::charts(results))
        (table(results))
        (totals(results))
        (services(results))
        @if explanation.of_real_host {
            (threads_of_vcpus(explanation))
        } @else {
            (share::bars(explanation))
            (convoys(explanation))
            (operators(explanation))
        }
        (blocked(explanation))
        (counters(explanation))
    }
}

fn warnings(results: &Results) -> Markup {
    html! {
        @if !results.complete || !results.failures.is_empty() {
            section class="warning" aria-label="Incomplete results" {
                h2 { "Incomplete results" }
                @if !results.complete { p { "Interrupted before all runs were done." } }
                @for failed in &results.failures {
                    p { "Case " (failed.case) ", variant " (failed.variant) ", seed " (failed.seed) " failed: " (failed.error) }
                    pre { (failed.replay) }
                }
            }
        }
    }
}

fn doubts(results: &Results) -> Markup {
    let doubts = doubts::doubts(results);
    html! {
        @if !doubts.is_empty() {
            section class="warning" aria-label="Little proof" {
                h2 { "Little proof" }
                @for doubt in &doubts { p { (prose(doubt)) "." } }
            }
        }
    }
}

fn remarks(remarks: &[String]) -> Markup {
    html! {
        @if !remarks.is_empty() {
            section aria-label="Remarks" {
                h2 { "Remarks" }
                @for remark in remarks { p { (prose(remark)) "." } }
            }
        }
    }
}

fn table(results: &Results) -> Markup {
    let calibrated = results
        .cases
        .iter()
        .any(|case| case.published.as_ref().is_some_and(|published| published.calibrate));
    html! {
        section {
            h2 { "Results" }
            @let alone = display::only_guest(results).is_some();
            @for cases in kinds(results) {
                @let published = cases.iter().any(|case| case.published.is_some());
                @let and = if published { " and published" } else { "" };
                (foldable(&format!("{}, {}{and}", cases[0].metric, result_kind(results)), &display::results(&cases, alone)))
            }
            @for line in also_published(results) {
                p { (line) }
            }
            p class="note" {
                @if calibrated { "* Not a prediction: the workload was calibrated on this figure. " }
                @if results.scale < 1.0 && results.cases.iter().any(|case| case.metric == "elapsed") {
                    "Elapsed times are full-size equivalents: measured time / " (results.scale) ". "
                }
                (convoys_note(results.are_of_real_host()))
            }
        }
    }
}

fn totals(results: &Results) -> Markup {
    html! {
        @if !results.totals.is_empty() {
            section {
                h2 { "Identical guests together" }
                (foldable("totals", &display::totals(results)))
                p class="note" { (TOTALS_NOTE) }
            }
        }
    }
}

fn services(results: &Results) -> Markup {
    let sheet = display::services(results);
    html! {
        @if !sheet.rows.is_empty() {
            section {
                h2 { "As the guests' users measure" }
                (foldable("operations and their times", &sheet))
                p class="note" { (SERVICES_NOTE) }
            }
        }
    }
}

/// Returns the origin of `results` in words.
pub(crate) fn result_kind(results: &Results) -> &'static str {
    if results.are_of_real_host() {
        "measured"
    } else {
        "predicted"
    }
}

/// Renders the figures of a real host, in place of lost time and convoys.
fn threads_of_vcpus(explanation: &Explanation) -> Markup {
    let heads = ["case", "variant", "guest"].into_iter().chain(HOST_FIGURES);
    let mut sheet = Sheet::new(heads, 3);
    let rows = explanation.rows.iter().filter_map(|row| {
        let names = [row.case.clone(), row.variant.clone(), row.vm.clone()];
        Some(names.into_iter().chain(host_figures(&row.host_figures?)).collect())
    });
    sheet.rows = rows.collect();
    html! {
        section {
            h2 { "Time of the vCPU threads on a real host" }
            p class="note" {
                "A real host does not record how much of this time was work, critical sections or spinning. It also does not \
                 record which vCPU held or wanted a lock when it was preempted, so convoys are not known."
            }
            (grid("vCPU threads from start to end, mean of the runs", &sheet))
        }
    }
}

fn convoys(explanation: &Explanation) -> Markup {
    let heads = [
        "case",
        "variant",
        "guest",
        "verdict",
        "convoys",
        "share of run, %",
        "spun per work",
        "stalls, ms",
    ];
    let three = |values: [String; 3]| values.join(" / ");
    let mut sheet = Sheet::new(heads, 4);
    sheet.rows = explanation
        .rows
        .iter()
        .filter_map(|row| {
            let found = row.convoys?;
            Some(vec![
                row.case.clone(),
                row.variant.clone(),
                row.vm.clone(),
                found.verdict().to_owned(),
                format!("{} of {}", found.convoys, found.runs),
                three(found.shares.map(|share| format!("{:.0}", share * 100.0))),
                three(found.spun_per_work.map(|ratio| format!("{ratio:.2}"))),
                three(found.stalls_ns.map(|stall| format!("{:.1}", stall as f64 / 1e6))),
            ])
        })
        .collect();
    html! {
        section {
            h2 { "Convoys" }
            (foldable("Convoys: least / median / most of the runs", &sheet.without_one("guest")))
            p class="note" {
                "A convoy is a period in which the guest's vCPUs spin behind vCPUs that are not running for longer than they work. \
                 Spun per work: the same ratio over the whole run. Stall: a period in which no vCPU of the guest works or runs \
                 with a lock held."
            }
        }
    }
}

/// Renders what operators measure of each guest, without exits by kind.
fn operators(explanation: &Explanation) -> Markup {
    let rows: Vec<&Row> = explanation.rows.iter().filter(|row| row.operators.is_some()).collect();
    let names = operators::names(rows.iter().filter_map(|row| row.operators.as_ref()), false);
    let value = |row: &Row, index: usize| {
        let figures = row.operators.as_ref();
        let found = figures.and_then(|figures| figures.figure(&names[index]));
        found.map_or_else(|| "-".to_owned(), number)
    };
    html! {
        @if !names.is_empty() {
            section {
                h2 { "As operators measure" }
                (foldable("CPU ready, steal, longest waits and throttling", &by_cell("figure", &rows, &names, value)))
            }
        }
    }
}

/// Renders the histogram of the times for which waiters were halted for a lock, if any halted.
fn blocked(explanation: &Explanation) -> Markup {
    let rows: Vec<&Row> = explanation.rows.iter().filter(|row| !row.blocked.is_empty()).collect();
    let lines = explain::blocked_lines(&rows);
    let names: Vec<String> = lines.iter().map(|(from_ns, _)| from_ns.to_string()).collect();
    let shown = |row: &Row, index: usize| {
        let at = rows.iter().position(|other| std::ptr::eq(*other, row));
        at.and_then(|at| lines[index].1[at])
            .map_or_else(|| "-".to_owned(), number)
    };
    html! {
        @if !lines.is_empty() {
            section {
                h2 { "Halted for a spinlock" }
                (foldable("Halts per run by their length: mean of the runs at this scale", &by_cell("from, ns", &rows, &names, shown)))
                p class="note" { "Each line reaches up to twice its time. The last line of 31 has no end." }
            }
        }
    }
}

fn counters(explanation: &Explanation) -> Markup {
    let rows: Vec<&Row> = explanation.rows.iter().filter(|row| row.measured).collect();
    let names = explain::counter_names(&rows);
    let known: &[&str] = if explanation.of_real_host {
        &KEY_HOST_COUNTERS
    } else {
        &KEY_COUNTERS
    };
    let (key, other): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| known.contains(name));
    html! {
        section {
            h2 { "Counters" }
            (foldable(PER_RUN, &per_run(&rows, &key)))
            @if !other.is_empty() {
                details { summary { "Other counters" } (grid(PER_RUN, &per_run(&rows, &other))) }
            }
        }
    }
}

/// Caption of tables of counters.
const PER_RUN: &str = "Per run: mean of the runs at this scale";

fn per_run(rows: &[&Row], names: &[&str]) -> Sheet {
    let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    by_cell("counter", rows, &owned, |row, index| {
        let found = row.counters.iter().find(|(known, _)| known == names[index]);
        found.map_or_else(|| "-".to_owned(), |(_, value)| number(*value))
    })
}

fn definition(results: &Results) -> Markup {
    html! {
        @if let Some(text) = &results.definition {
            section {
                h2 { "The experiment" }
                details {
                    summary { "Experiment file (TOML)" }
                    pre { (text) }
                }
            }
        }
    }
}

fn provenance(results: &Results) -> Markup {
    let seeds: Vec<String> = results.seeds.iter().map(ToString::to_string).collect();
    let mut sheet = Sheet::new(
        ["case", "variant", "guest", "source of the published figure", "history"],
        3,
    );
    let rows = results.cases.iter().map(|case| {
        let source = case.published.as_ref().map(|published| published.source.clone());
        vec![
            case.case.clone(),
            case.variant.clone(),
            case.vm.clone(),
            source.unwrap_or_default(),
            match case.is_of_real_host() {
                true => "none (real host)".to_owned(),
                false => case.history_hash.clone(),
            },
        ]
    });
    sheet.rows = rows.collect();
    let mut sheet = sheet.with_content();
    sheet.texts = sheet.heads.len();
    html! {
        section {
            h2 { "Provenance" }
            dl {
                dt { "Version" } dd { code { (results.version) } }
                dt { @if results.are_of_real_host() { "Machine" } @else { "Machine profile" } } dd { (results.machine) }
                dt { "Seeds" } dd { (seeds.join(", ")) }
                dt { "Scale" } dd { (results.scale) }
                dt { "Schema" } dd { code { (results.schema) } }
                dt { "Command to repeat" } dd { pre { (prose(&results.command)) } }
            }
            (foldable("History hashes: equal hashes mean runs that are equal bit for bit", &sheet))
        }
    }
}
