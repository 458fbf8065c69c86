//! Renders the charts of a result file as self-contained SVG files, for other pages.
//!
//! Marks, colors and words are those of the page. The layout is fixed, since an SVG file is not laid out again. Colors
//! follow the reader's light or dark setting.

use maud::{Markup, PreEscaped, html};

use super::chart::{self, Axis};
use super::{share, sweep};
use crate::display::kinds;
use crate::explain::{self, Row};
use crate::results::{Case, Results};

/// Width in pixels of a drawing, of its labels and of its plots.
pub(super) const WIDTH: u32 = 960;
/// Distance in pixels from the edges.
pub(super) const MARGIN: f64 = 14.0;
pub(crate) const LABELS: u32 = 290;
pub(crate) const PLOT: u32 = WIDTH - LABELS - 20;
/// Height in pixels of a bar with its distance to the next.
const BAR: u32 = 24;
/// Height in pixels of a row of the legend.
const LEGEND: u32 = 20;
/// Styles of a drawing in addition to the page's.
const STYLE: &str = "text { fill: var(--ink); font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; } \
                     .title { font-size: 16px; font-weight: 600; } .soft, .axis text { fill: var(--soft); font-size: 12px; } \
                     .paper { fill: var(--paper); } .case { font-weight: 600; } .small { font-size: 11px; }";

/// An SVG file.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// File name without extension, in plain letters.
    pub name: String,
    /// Content of the file.
    pub svg: String,
}

/// Returns all drawings of `results`.
pub fn drawings(results: &Results) -> Vec<Drawing> {
    let mut drawings: Vec<Drawing> = kinds(results)
        .into_iter()
        .filter_map(|cases| {
            let (metric, unit) = (&cases[0].metric, &cases[0].unit);
            Some(Drawing {
                name: name(&results.experiment, metric),
                svg: samples(results, &cases, metric, unit)?,
            })
        })
        .collect();
    let explanation = explain::explain(results);
    let rows: Vec<&Row> = explanation
        .rows
        .iter()
        // Only the page shows guests that are not measured.
        .filter(|row| row.measured && !row.lost_time.is_empty())
        .collect();
    if !rows.is_empty() {
        drawings.push(Drawing {
            name: name(&results.experiment, "lost-time"),
            svg: bars(results, &rows),
        });
    }
    drawings.extend(sweep::drawing(results));
    drawings
}

/// Returns a name that every file system accepts.
pub(super) fn name(experiment: &str, what: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) {
            c
        } else {
            '_'
        }
    };
    format!("{experiment}-{what}").chars().map(plain).take(200).collect()
}

/// Renders a drawing of `height` pixels with a title and all styles. `content` starts 40 pixels below the top.
pub(crate) fn frame(title: &str, words: &str, height: u32, content: &Markup) -> String {
    let style = [super::MARKS, STYLE].concat();
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            title { (words) }
            style { (PreEscaped(style)) }
            rect class="paper" width="100%" height="100%" {}
            text class="title" x="14" y="26" { (title) }
            (content)
        }
    };
    svg.into_string()
}

fn label(case: &str, variant: &str, vm: &str, y: u32) -> Markup {
    html! {
        text x="14" y=(y) { tspan class="case" { (case) } " " (variant) " " tspan class="soft" { (vm) } }
    }
}

fn samples(results: &Results, cases: &[&Case], metric: &str, unit: &str) -> Option<String> {
    let axis = Axis::of(cases)?;
    let published = cases.iter().any(|case| case.published.is_some());
    let row = if published {
        chart::HEIGHT as u32
    } else {
        2 * chart::MIDDLE as u32
    };
    let top = 62;
    let bottom = top + row * cases.len() as u32;
    let better = cases.first().map_or("", |case| case.better.as_str());
    let scale = if axis.logarithmic { ", logarithmic" } else { "" };
    let marks = if published {
        "; diamonds: published, hollow if calibrated on"
    } else {
        ""
    };
    let note = format!("{better} is better{scale}; dots: samples, bar: mean and standard deviation{marks}");
    let content = html! {
        text class="soft" x="14" y="46" { (note) }
        @for (index, case) in cases.iter().enumerate() {
            @let y = top + row * index as u32;
            (label(&case.case, &case.variant, &case.vm, y + chart::MIDDLE as u32 + 5))
            svg x=(LABELS) y=(y) width=(PLOT) height=(row) overflow="visible" {
                title { (chart::in_words(case)) }
                (chart::marks(case, &axis, f64::from(row)))
            }
        }
        svg class="axis" x=(LABELS) y=(bottom) width=(PLOT) height="20" overflow="visible" { (chart::numbers(&axis, unit, [f64::from(PLOT); 2])) }
    };
    let title = format!("{}: {metric}, {unit}", results.experiment);
    Some(frame(&title, &title, bottom + 30, &content))
}

fn bars(results: &Results, rows: &[&Row]) -> String {
    let drawn: Vec<Vec<share::Part>> = rows.iter().map(|row| share::parts(row)).collect();
    let seen = |index: usize| drawn.iter().any(|parts| parts[index].share > 0.0);
    let legend: Vec<(&str, &str)> = drawn[0]
        .iter()
        .enumerate()
        .filter(|(index, _)| seen(*index))
        .map(|(_, part)| (part.class, part.name))
        .collect();
    let (marks, used) = legend_of(&legend, 42);
    let top = 52 + used;
    let content = html! {
        (marks)
        @for (index, (row, parts)) in rows.iter().zip(&drawn).enumerate() {
            @let y = top + BAR * index as u32;
            (label(&row.case, &row.variant, &row.vm, y + 14))
            svg class="bar" x=(LABELS) y=(y) width=(PLOT) height=(BAR - 4) {
                title { (share::in_words(row, parts)) }
                (share::filling(parts, BAR - 4))
            }
        }
    };
    let title = format!("{}: where the vCPUs' time went", results.experiment);
    frame(&title, &title, top + BAR * rows.len() as u32 + 14, &content)
}

/// Renders a legend of (class, name) from `top` on, in as many columns as fit. Returns it with its height in pixels.
pub(crate) fn legend_of(entries: &[(&str, &str)], top: u32) -> (Markup, u32) {
    let longest = entries.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
    let columns = if longest > 42 { 2 } else { 3 };
    let marks = html! {
        @for (index, (class, name)) in entries.iter().enumerate() {
            @let x = 14 + (index as u32 % columns) * ((WIDTH - 28) / columns);
            @let y = top + (index as u32 / columns) * LEGEND;
            rect class=(class) x=(x) y=(y) width="16" height="12" {}
            text x=(x + 22) y=(y + 11) { (name) }
        }
    };
    (marks, (entries.len() as u32).div_ceil(columns) * LEGEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(name("../a b<c>", "elapsed"), "___a_b_c_-elapsed");
    }

    #[test]
    fn what_is_foreign_is_escaped() {
        let svg = frame("<script>&", "\"'<", 100, &html! {});
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;&amp;"), "{svg}");
    }
}
