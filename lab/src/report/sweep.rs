//! Sweeps: curves over one swept key, a heat map over two, and what each value buys.

mod drawn;
mod map;

use maud::{Markup, html};

use super::chart::{self, Axis, length, share, tick_text};
use super::tables::grid;
use super::words::spoken_number;
use crate::display::matrix::proven;
use crate::display::{changes, number};
use crate::figure::Figure;
use crate::results::Results;
use crate::sheet::Sheet;
use crate::stats::Center;
use crate::sweep::{self, Along, Bought, Group};

pub(super) use drawn::drawing;

/// Height of a chart in pixels, and of its plot between the two.
const HEIGHT: f64 = 250.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 220.0;
/// Width in pixels of a chart on a phone, and the least width on other screens.
const PHONE: f64 = 250.0;
const SCREEN: f64 = 590.0;
/// Distance in pixels between the marks of two lines at one value, and of all lines together at most.
const APART: f64 = 6.0;
const APART_MAX: f64 = 30.0;
/// Lines of one chart that can be told apart: colors, each solid and dashed.
const LINES_MAX: usize = 12;
/// Rows of a table that is shown without a click.
const ROWS_MAX: usize = 24;

/// Renders the sections of a sweep; nothing for results without one.
pub(super) fn sections(results: &Results) -> Markup {
    let keys = sweep::keys(results);
    html! {
        @if keys.len() == 1 {
            (curves(results, keys[0]))
        } @else if let [first, second, ..] = keys[..] {
            (map::maps(results, [first, second]))
        }
        @for key in keys {
            @if let Ok(along) = sweep::along(results, key) { (bought(&along)) }
        }
    }
}

/// Returns the charts over `key`: one for each case and guest, with a line for each variant.
fn charts<'g, 'r>(groups: &'g [Group<'r>]) -> Vec<Vec<&'g Group<'r>>> {
    let mut charts: Vec<Vec<&Group<'_>>> = Vec::new();
    for group in groups {
        let same = |chart: &&mut Vec<&Group<'_>>| {
            chart.len() < LINES_MAX && (&chart[0].case, &chart[0].vm) == (&group.case, &group.vm)
        };
        match charts.iter_mut().find(same) {
            Some(chart) => chart.push(group),
            None => charts.push(vec![group]),
        }
    }
    charts
}

/// Renders the charts over `key`.
fn curves(results: &Results, key: &str) -> Markup {
    let groups = sweep::groups(results, &[key]);
    html! {
        @for chart in &charts(&groups) {
            section {
                h2 { (metric(chart[0])) " over " (key) }
                p class="note" {
                    @if !chart[0].case.is_empty() { "Case " b { (chart[0].case) } ", guest " } @else { "Guest " }
                    b { (chart[0].vm) } ". " (better(chart[0])) " Geometric means with their 95 % confidence intervals."
                }
                (curve(chart))
            }
        }
    }
}

fn metric(group: &Group<'_>) -> String {
    let case = group.cells[0].1.case;
    format!("{}, {}", case.metric, case.unit)
}

fn better(group: &Group<'_>) -> String {
    let better = &group.cells[0].1.case.better;
    let mut letters = better.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    format!("{}{} is better.", first.collect::<String>(), letters.as_str())
}

fn curve(groups: &[&Group<'_>]) -> Markup {
    let Some((marks, logarithmic)) = plot(groups) else {
        return html! { p { "No samples." } };
    };
    html! {
        @if groups.len() > 1 {
            ul class="legend" {
                @for (index, group) in groups.iter().enumerate() {
                    li { svg width="34" height="18" aria-hidden="true" { (sample_of(index)) } (group.variant) }
                }
            }
        }
        svg class="plot curve" height=(HEIGHT) role="img" aria-label=(spoken(groups)) { (marks) }
        @if logarithmic { p class="note" { "The vertical axis is logarithmic." } }
    }
}

/// Renders a piece of a line for the legend, 34 pixels wide and 18 high.
fn sample_of(index: usize) -> Markup {
    html! {
        line class=(line_class(index)) x1="2" x2="32" y1="9" y2="9" {}
        circle class=(line_class(index)) cx="17" cy="9" r="4" {}
    }
}

fn spoken(groups: &[&Group<'_>]) -> String {
    let words: Vec<String> = groups.iter().map(|group| in_words(group)).collect();
    words.join("; ")
}

/// Renders the axes and lines of a chart, and returns whether the vertical axis is logarithmic. `None` without samples.
fn plot(groups: &[&Group<'_>]) -> Option<(Markup, bool)> {
    let ends = |center: Center| {
        [
            Some(center.mean),
            center.interval.map(|it| it.0),
            center.interval.map(|it| it.1),
        ]
    };
    let centers = |group: &&Group<'_>| -> Vec<f64> {
        let figures = group.cells.iter().filter_map(|(_, figure)| figure.center());
        figures.flat_map(ends).flatten().collect()
    };
    let axis = Axis::over(groups.iter().flat_map(centers))?;
    let mut values: Vec<&str> = Vec::new();
    for value in groups.iter().flat_map(|group| group.values(0)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let places = places(&values);
    let x = |value: &str| places[values.iter().position(|known| *known == value).unwrap_or(0)];
    let y = |value: f64| BOTTOM - axis.at(value) / 100.0 * (BOTTOM - TOP);
    let (on_phones, on_screens) = (labels(&values, &places, PHONE), labels(&values, &places, SCREEN));
    // Lines that agree must not hide each other.
    let apart = APART.min(APART_MAX / groups.len() as f64);
    let aside = |index: usize| (index as f64 - (groups.len() - 1) as f64 / 2.0) * apart;
    let marks = html! {
        g class="axis" {
            @for tick in axis.ticks() {
                line class="grid" x1="0" x2="100%" y1=(y(tick)) y2=(y(tick)) {}
                text x="-8" y=(y(tick) + 4.0) text-anchor="end" { (tick_text(tick)) }
            }
            @for (index, value) in values.iter().enumerate() {
                @if on_screens[index] || on_phones[index] {
                    text class=[(!on_phones[index]).then_some("roomy")] x=(share(places[index])) y=(HEIGHT - 8.0)
                        text-anchor="middle" { (value) }
                }
            }
        }
        @for (index, group) in groups.iter().enumerate() {
            @let points = points(group, x);
            g transform=(format!("translate({:.1} 0)", aside(index))) {
                @for pair in points.windows(2) {
                    line class=(line_class(index)) x1=(share(x(pair[0].0))) y1=(y(pair[0].1.mean))
                        x2=(share(x(pair[1].0))) y2=(y(pair[1].1.mean)) {}
                }
                @for (value, center) in &points {
                    @if let Some((low, high)) = center.interval {
                        line class={ (line_class(index)) " interval" } x1=(share(x(value))) x2=(share(x(value)))
                            y1=(y(low)) y2=(y(high)) {}
                    }
                    circle class=(line_class(index)) cx=(share(x(value))) cy=(y(center.mean)) r="4" {
                        title {
                            (group.variant) ", " (value) ": " (with_interval(*center, &group.cells[0].1.case.unit))
                        }
                    }
                }
            }
        }
    };
    Some((marks, axis.logarithmic))
}

/// Returns which of `values` are labeled in a chart of `width` pixels.
fn labels(values: &[&str], places: &[f64], width: f64) -> Vec<bool> {
    let span = |(value, at): (&&str, &f64)| {
        let (middle, half) = (at / 100.0 * width, length(value) / 2.0);
        (middle - half, middle + half)
    };
    chart::labels(&values.iter().zip(places).map(span).collect::<Vec<_>>())
}

/// Returns the points of a line, those with samples, from left to right.
fn points<'r>(group: &Group<'r>, x: impl Fn(&str) -> f64) -> Vec<(&'r str, Center)> {
    let point = |(at, figure): &(Vec<&'r str>, Figure<'r>)| Some((at[0], figure.center()?));
    let mut points: Vec<(&str, Center)> = group.cells.iter().filter_map(point).collect();
    points.sort_by(|a, b| x(a.0).total_cmp(&x(b.0)));
    points
}

fn line_class(index: usize) -> String {
    let dashed = if index >= LINES_MAX / 2 { " dashed" } else { "" };
    format!("s{}{dashed}", index % (LINES_MAX / 2))
}

fn in_words(group: &Group<'_>) -> String {
    let unit = &group.cells[0].1.case.unit;
    let points = group
        .cells
        .iter()
        .filter_map(|(at, figure)| Some((at[0], figure.center()?)));
    let points: Vec<String> = points
        .map(|(value, center)| format!("{value}: {}", spoken_number(center.mean, unit)))
        .collect();
    format!("{}: {}", group.name(), points.join(", "))
}

fn with_interval(center: Center, unit: &str) -> String {
    match center.interval {
        Some((low, high)) => format!(
            "{} [{}, {}]",
            spoken_number(center.mean, unit),
            number(low),
            number(high)
        ),
        None => spoken_number(center.mean, unit),
    }
}

/// Returns the place of each value in percent of the width: in proportion if all are numbers of one unit, evenly if
/// not. Numbers that differ much are on a logarithmic axis.
fn places(values: &[&str]) -> Vec<f64> {
    const MARGIN: f64 = 4.0;
    let parsed = |value: &&str| -> Option<(f64, String)> {
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        let number: f64 = number.parse().ok()?;
        number.is_finite().then(|| (number, unit.to_owned()))
    };
    let numbers: Option<Vec<(f64, String)>> = values.iter().map(parsed).collect();
    let numbers = numbers.filter(|all| all.iter().all(|(_, unit)| *unit == all[0].1));
    let count = values.len();
    let evenly = || (0..count).map(|index| index as f64).collect();
    let along: Vec<f64> = match numbers {
        None => evenly(),
        Some(numbers) => {
            let numbers: Vec<f64> = numbers.into_iter().map(|(number, _)| number).collect();
            let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match (low > 0.0, high / low > 12.0) {
                (true, true) => numbers.iter().map(|number| number.ln()).collect(),
                (true, false) => numbers,
                // Zero has no place on a logarithmic axis, and hides small values on another one.
                (false, _) => evenly(),
            }
        }
    };
    let low = along.iter().copied().fold(f64::INFINITY, f64::min);
    let high = along.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let place = |at: f64| match high > low {
        true => MARGIN + (at - low) / (high - low) * (100.0 - 2.0 * MARGIN),
        false => 50.0,
    };
    along.into_iter().map(place).collect()
}

/// Renders what each value of a key buys.
fn bought(along: &Along) -> Markup {
    let heads = ["cells", "value", "mean", "change, %", "interval, %", "proven"];
    let mut sheet = Sheet::new(heads, 1);
    sheet.rows = along.rows.iter().map(|row| bought_row(row).to_vec()).collect();
    let table = grid(&format!("{}, next to the first value", along.key), &sheet);
    let proven = along.rows.iter().filter(|row| row.better.is_some()).count();
    html! {
        section {
            h2 { "What " (along.key) " buys" }
            @if along.rows.len() > ROWS_MAX {
                details { summary { (along.rows.len()) " comparisons, of which " (proven) " are proven" } (table) }
            } @else {
                (table)
            }
            p class="note" {
                "Change of the geometric mean is the size of a difference; whether it is proven is another question. \
                 Intervals are corrected for " (along.comparisons) " comparisons: with 95 % confidence all of them hold together."
            }
        }
    }
}

fn bought_row(row: &Bought) -> [String; 6] {
    let names = [&*row.case, &*row.variant, &*row.vm];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let mean = |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), number);
    let interval = row.comparison.and_then(|comparison| comparison.interval);
    let proven = row.judgment.map_or("no samples", proven);
    [
        names.join(" / "),
        format!("{} → {}", row.from, row.to),
        format!("{} → {} {}", mean(row.mean_from), mean(row.mean_to), row.unit),
        row.change_percent
            .map_or_else(|| "-".to_owned(), |change| format!("{change:+.1}")),
        interval.map_or_else(|| "-".to_owned(), changes),
        proven.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places_in_their_order() {
        assert_eq!(places(&["1", "2", "3"]), [4.0, 50.0, 96.0]);
        assert_eq!(places(&["tas", "ticket"]), [4.0, 96.0]);
        assert_eq!(places(&["1 ms", "2 s"]), [4.0, 96.0], "two units");
        assert_eq!(places(&["100 us", "200 us", "500 us"])[1], 27.0);
        let logarithmic = places(&["1024", "4096", "65536"]);
        assert!((logarithmic[1] - (4.0 + 92.0 / 3.0)).abs() < 1e-9, "{logarithmic:?}");
        assert_eq!(places(&["0", "10", "100000"]), [4.0, 50.0, 96.0], "zero");
        assert_eq!(places(&["8"]), [50.0]);
    }

    #[test]
    fn labels_do_not_touch_each_other() {
        let values = ["64", "1024", "16384", "65536", "131072"];
        let shown = |width: f64| labels(&values, &places(&values), width);
        assert_eq!(shown(SCREEN), [true; 5]);
        assert_eq!(shown(PHONE), [true, true, true, false, true], "the last two are close");
        assert_eq!(labels(&["8"], &[50.0], PHONE), [true]);
        assert!(labels(&[], &[], PHONE).is_empty());
    }
}
