//! Numbers and results as text, for the terminal and for reports.

pub mod matrix;

use crate::compare::{Judgment, Row};
use crate::explain::{Convoys, HostFigures};
use crate::results::{Case, Results, Total};
use crate::service;
use crate::sheet::Sheet;
use crate::stats::Summary;

/// Returns `value` with four significant digits, or with all digits before its point if these are more.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Outside this range a table has no room for all the zeros.
    if !(1e-9..1e15).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let digits = value.abs().log10().floor() as i32;
    let decimals = (3 - digits).clamp(0, 12) as usize;
    format!("{value:.decimals$}")
}

/// Returns `value` as [`number`] does, or "-" if it is missing.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// Returns a share in percent.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "-".to_owned(),
        percent if percent < 0.05 => "<0.1".to_owned(),
        percent => format!("{percent:.1}"),
    }
}

/// Returns the table of `cases`, whose metric and unit are the same. Columns without content are left out, and the name
/// of the guest if it is `alone` in the results.
pub fn results(cases: &[&Case], alone: bool) -> Sheet {
    let mean = cases
        .first()
        .map_or_else(String::new, |case| format!("{}, {}", case.metric, case.unit));
    let heads = [
        "case",
        "variant",
        "guest",
        &mean,
        "sd",
        "median",
        "range",
        "published (sd)",
        "ratio",
        "convoys",
    ];
    let mut sheet = Sheet::new(heads, 3);
    sheet.rows = cases.iter().map(|case| result_row(case).to_vec()).collect();
    match alone {
        true => sheet.with_content().without_one("guest"),
        false => sheet.with_content(),
    }
}

/// Returns the cells of `results` by metric and unit, in their order.
pub fn kinds(results: &Results) -> Vec<Vec<&Case>> {
    let mut kinds: Vec<Vec<&Case>> = Vec::new();
    for case in &results.cases {
        let same = |kind: &&mut Vec<&Case>| (&kind[0].metric, &kind[0].unit) == (&case.metric, &case.unit);
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(case),
            None => kinds.push(vec![case]),
        }
    }
    kinds
}

/// Returns the name of the only guest of `results`, or `None` if there are several.
pub fn only_guest(results: &Results) -> Option<&str> {
    let first = results.cases.first()?.vm.as_str();
    results.cases.iter().all(|case| case.vm == first).then_some(first)
}

/// Returns the table of identical guests together.
pub fn totals(results: &Results) -> Sheet {
    let mut sheet = Sheet::new(TOTAL_HEADS, 3);
    sheet.rows = results.totals.iter().map(|total| total_row(total).to_vec()).collect();
    sheet.with_content()
}

/// Column heads of totals over identical guests. The first three columns are text.
const TOTAL_HEADS: [&str; 7] = [
    "case",
    "variant",
    "guests",
    "together",
    "sd",
    "unit",
    "smallest / largest",
];

/// Returns the row of `total` in a table of totals.
fn total_row(total: &Total) -> [String; 7] {
    let evenness = Summary::of(&total.evenness).map(|summary| summary.mean);
    [
        total.case.clone(),
        total.variant.clone(),
        format!("{} x {}", total.guests, total.vm),
        optional(total.mean),
        optional(total.sd),
        total.unit.clone(),
        optional(evenness),
    ]
}

/// Explanation of totals.
pub const TOTALS_NOTE: &str = "Together: the sum of the guests' throughputs, or the time until the last guest was done. \
                               Smallest / largest: of the guests' own figures, 1 if all got the same.";

/// Returns the table of what the users of the guests measure; without rows if none counts operations.
pub fn services(results: &Results) -> Sheet {
    let served = || results.cases.iter().filter_map(|case| case.service.as_ref());
    let names = service::names(served());
    let heads = ["case", "variant", "guest"].into_iter().map(str::to_owned);
    let mut sheet = Sheet::new(heads.chain(names.iter().cloned()), 3);
    for (case, service) in results
        .cases
        .iter()
        .filter_map(|case| Some((case, case.service.as_ref()?)))
    {
        let figures = names.iter().map(|name| optional(service.figure(name)));
        let of = [case.case.clone(), case.variant.clone(), case.vm.clone()];
        sheet.rows.push(of.into_iter().chain(figures).collect());
    }
    let sheet = sheet.without_one("case");
    match only_guest(results) {
        Some(_) => sheet.without_one("guest"),
        None => sheet,
    }
}

/// Explanation of what users measure.
pub const SERVICES_NOTE: &str = "Times of whole operations, as their users wait for them: means over the runs of the \
                                 median and the 99th percentile, and the longest of all.";

/// Heading of what users measure.
pub const SERVICES: &str = "as the guests' users measure";

/// Returns the row of `case` in a table of results.
pub fn result_row(case: &Case) -> [String; 10] {
    let published = case.published.as_ref().map_or_else(String::new, |published| {
        let sd = published.sd.map_or_else(String::new, |sd| format!(" ({})", number(sd)));
        let star = if published.calibrate { "*" } else { "" };
        format!("{}{star}{sd}", number(published.mean))
    });
    // One sample has no spread.
    let range = match (case.min, case.max, case.sd) {
        (Some(min), Some(max), Some(_)) => format!("{}-{}", number(min), number(max)),
        _ => "-".to_owned(),
    };
    let convoys = match Convoys::of(case) {
        Some(found) => format!("{} of {}", found.convoys, found.runs),
        None if case.is_of_real_host() => "not known".to_owned(),
        None => String::new(),
    };
    [
        case.case.clone(),
        case.variant.clone(),
        case.vm.clone(),
        optional(case.mean),
        optional(case.sd),
        optional(case.median.filter(|_| case.sd.is_some())),
        range,
        published,
        case.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        convoys,
    ]
}

/// Returns a line for each published figure of another quantity than the metric.
pub fn also_published(results: &Results) -> Vec<String> {
    let lines = results.cases.iter().flat_map(|case| {
        case.also_published.iter().map(|other| {
            let predicted = optional(Summary::of(&other.samples).map(|summary| summary.mean));
            let (case, variant, vm) = case.id();
            let published = number(other.published.mean);
            format!(
                "{case} / {variant} / {vm}: {} {predicted} %, published {published} %",
                other.of.name()
            )
        })
    });
    lines.collect()
}

/// Returns the note below a table of results: what the column of convoys counts, or why it is empty.
pub fn convoys_note(of_real_host: bool) -> &'static str {
    if of_real_host {
        "Convoys and lost time: not visible to a real host. `holdfast explain` shows what is known."
    } else {
        "Convoys: runs that for some time spun longer behind preempted vCPUs than they worked (see `holdfast explain`)."
    }
}

/// Names of the figures of [`host_figures`].
pub const HOST_FIGURES: [&str; 4] = [
    "ran, s",
    "ready, without a CPU, s",
    "share of the time without a CPU, %",
    "asleep in halts, s",
];

/// Returns a real host's figures about the vCPUs' threads as text.
pub fn host_figures(figures: &HostFigures) -> [String; 4] {
    [
        number(figures.ran_s),
        number(figures.ready_s),
        percent(figures.without_cpu),
        optional(figures.halted_s),
    ]
}

/// Returns the comparison of `row` in words.
pub fn verdict(row: &Row) -> String {
    let Some(comparison) = row.comparison else {
        return "no samples".to_owned();
    };
    let interval = comparison
        .interval
        .map_or_else(String::new, |(low, high)| format!(" [{}, {}]", ratio(low), ratio(high)));
    let judgment = match row.judgment {
        None => return "no samples".to_owned(),
        Some(Judgment::Identical) if row.same_history => {
            return "the same history: what differs did nothing in these runs".to_owned();
        }
        Some(Judgment::Identical) => return Judgment::Identical.words().to_owned(),
        Some(judgment) => judgment.words(),
    };
    format!("x {}{interval}: {judgment}", ratio(comparison.ratio))
}

/// Returns an interval of ratios as changes in percent, or only a bound for an end that is very far.
pub fn changes((low, high): (f64, f64)) -> String {
    let change = |ratio: f64| match ratio {
        ratio if ratio < 0.001 => "<-99.9".to_owned(),
        ratio if ratio > 11.0 => ">+1000".to_owned(),
        ratio => format!("{:+.1}", (ratio - 1.0) * 100.0),
    };
    format!("{} to {}", change(low), change(high))
}

/// Returns a ratio with three decimals, or only a bound if it is very small or large.
fn ratio(value: f64) -> String {
    match value {
        value if value < 0.001 => "<0.001".to_owned(),
        value if value > 1000.0 => ">1000".to_owned(),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let shown: Vec<String> = [0.0, 0.001234567, 1.0, 38.1033, 778.622, 2399.11, 51993.5]
            .map(number)
            .to_vec();
        assert_eq!(shown, ["0", "0.001235", "1.000", "38.10", "778.6", "2399", "51994"]);
        assert_eq!([1e300, -1e-300].map(number), ["1.000e300", "-1.000e-300"]);
    }

    #[test]
    fn intervals_of_two_samples_show_no_millions_of_percent() {
        let shown = [(0.9, 1.1), (0.001, 11.0), (0.000_9, 11.1), (1e-9, 272_746.0)].map(changes);
        let expected = [
            "-10.0 to +10.0",
            "-99.9 to +1000.0",
            "<-99.9 to >+1000",
            "<-99.9 to >+1000",
        ];
        assert_eq!(shown, expected);
    }
}
