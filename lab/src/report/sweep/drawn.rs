//! Curves and heat maps as a drawing, a file of its own.

use maud::{Markup, html};

use super::super::drawing::{Drawing, MARGIN, WIDTH, frame, name};
use super::map::Map;
use super::{HEIGHT, better, charts, metric, plot, sample_of, spoken, with_interval};
use crate::display::number;
use crate::results::Results;
use crate::sweep::{self, Group};

/// Returns the curves or heat maps of a sweep as a drawing.
pub(crate) fn drawing(results: &Results) -> Option<Drawing> {
    let keys = sweep::keys(results);
    let keys = &keys[..keys.len().min(2)];
    let groups = sweep::groups(results, keys);
    let first = groups.first()?;
    let title = format!("{}: {} over {}", results.experiment, metric(first), keys.join(" and "));
    let note = format!(
        "{} Geometric means with their 95 % confidence intervals.",
        better(first)
    );
    let mut top = 62.0;
    let mut parts = Vec::new();
    match keys {
        [_] => charts(&groups)
            .iter()
            .for_each(|chart| parts.extend(drawn_curve(chart, &mut top))),
        [down, across] => groups
            .iter()
            .for_each(|group| parts.push(drawn_map(group, [down, across], &mut top))),
        _ => return None,
    }
    let content = html! {
        text class="soft" x=(MARGIN) y="46" { (note) }
        @for part in &parts { (part) }
    };
    Some(Drawing {
        name: name(&results.experiment, "sweep"),
        svg: frame(&title, &title, top as u32, &content),
    })
}

/// Room in pixels for the labels at the left of a drawn chart.
const LEFT: f64 = 80.0;
/// Height in pixels of a line of text.
const TEXT: f64 = 22.0;

/// Draws a chart at `top`, and moves `top` below it. `None` without samples.
fn drawn_curve(groups: &[&Group<'_>], top: &mut f64) -> Option<Markup> {
    const COLUMNS: usize = 3;
    let (marks, logarithmic) = plot(groups)?;
    let begin = *top;
    let legend = begin + TEXT;
    let step = (f64::from(WIDTH) - 2.0 * MARGIN) / COLUMNS as f64;
    let chart = legend + groups.len().div_ceil(COLUMNS) as f64 * TEXT;
    *top = chart + HEIGHT + TEXT;
    let first = groups[0];
    Some(html! {
        text class="case" x=(MARGIN) y=(begin + 14.0) {
            @if !first.case.is_empty() { (first.case) " / " } (first.vm)
            @if logarithmic { ", logarithmic" }
        }
        @for (index, group) in groups.iter().enumerate() {
            @let (x, y) = (MARGIN + (index % COLUMNS) as f64 * step, legend + (index / COLUMNS) as f64 * TEXT);
            svg x=(x) y=(y) width="34" height="18" { (sample_of(index)) }
            text x=(x + 40.0) y=(y + 14.0) { (group.variant) }
        }
        svg x=(LEFT) y=(chart) width=(f64::from(WIDTH) - LEFT - MARGIN) height=(HEIGHT) overflow="visible" {
            title { (spoken(groups)) }
            (marks)
        }
    })
}

/// Draws a heat map at `top`, and moves `top` below it.
fn drawn_map(group: &Group<'_>, keys: [&str; 2], top: &mut f64) -> Markup {
    const ROW: f64 = 38.0;
    /// Widths in pixels of a column from which it has room for an interval, and for a mean.
    const INTERVAL: f64 = 96.0;
    const MEAN: f64 = 48.0;
    let map = Map::of(group);
    let begin = *top;
    let heads = begin + 2.0 * TEXT;
    let left = 120.0;
    let column = (f64::from(WIDTH) - left - MARGIN) / map.columns.len().max(1) as f64;
    *top = heads + 8.0 + ROW * map.rows.len() as f64 + TEXT;
    html! {
        text x=(MARGIN) y=(begin + 14.0) {
            tspan class="case" { (group.name()) }
            tspan class="soft" dx="12" { (keys[map.down]) " down, " (keys[map.across]) " across" }
        }
        @for (index, value) in map.columns.iter().enumerate() {
            text x=(left + (index as f64 + 0.5) * column) y=(heads) text-anchor="middle" { (value) }
        }
        @for (index, (row, cells)) in map.rows.iter().zip(&map.cells).enumerate() {
            @let y = heads + 8.0 + index as f64 * ROW;
            text x=(left - 10.0) y=(y + 23.0) text-anchor="end" { (row) }
            @for (index, cell) in cells.iter().enumerate() {
                @let x = left + index as f64 * column;
                @if let Some(center) = cell {
                    rect class="heat" x=(x) y=(y) width=(column) height=(ROW)
                        fill-opacity=(format!("{:.3}", map.heat(*center) / 100.0)) {
                        title { (with_interval(*center, &group.cells[0].1.case.unit)) }
                    }
                    @if column >= MEAN {
                        text x=(x + column / 2.0) y=(y + 16.0) text-anchor="middle" { (number(center.mean)) }
                    }
                    @if let (true, Some((low, high))) = (column >= INTERVAL, center.interval) {
                        text class="small" x=(x + column / 2.0) y=(y + 31.0) text-anchor="middle" {
                            (number(low)) " – " (number(high))
                        }
                    }
                }
            }
        }
    }
}
