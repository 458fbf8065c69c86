//! Heat maps over two swept keys.

use maud::{Markup, html};

use super::{better, metric};
use crate::display::number;
use crate::results::Results;
use crate::stats::Center;
use crate::sweep::{self, Group};

/// Renders a heat map over two keys for each case, variant and guest. Values of further keys are in the names.
pub(super) fn maps(results: &Results, keys: [&str; 2]) -> Markup {
    let groups = sweep::groups(results, &keys);
    html! {
        @for group in &groups {
            section {
                h2 { (metric(group)) " over " (keys[0]) " and " (keys[1]) }
                p class="note" {
                    b { (group.name()) } ". " (better(group)) " Geometric means with their 95 % confidence intervals. \
                    The stronger the color of a cell, the larger its mean."
                }
                (map(group, keys))
            }
        }
    }
}

/// A group as a table over two keys.
pub(super) struct Map<'r> {
    /// Indices of the keys whose values are the rows and the columns.
    pub(super) down: usize,
    pub(super) across: usize,
    pub(super) rows: Vec<&'r str>,
    pub(super) columns: Vec<&'r str>,
    /// The cells of each row.
    pub(super) cells: Vec<Vec<Option<Center>>>,
    /// Natural logarithm of the least mean, and of the ratio that has the strongest color.
    low: f64,
    range: f64,
}

impl<'r> Map<'r> {
    pub(super) fn of(group: &Group<'r>) -> Map<'r> {
        // The key with fewer values has the columns.
        let all = [group.values(0), group.values(1)];
        let (down, across) = if all[0].len() < all[1].len() { (1, 0) } else { (0, 1) };
        let at = |row: &str, column: &str| {
            let mut cells = group.cells.iter();
            let cell = cells.find(|(at, _)| at[down] == row && at[across] == column);
            cell.and_then(|(_, figure)| figure.center())
        };
        let line = |row: &&str| all[across].iter().map(|column| at(row, column)).collect();
        let cells: Vec<Vec<Option<Center>>> = all[down].iter().map(line).collect();
        let means = cells.iter().flatten().flatten().map(|center| center.mean.ln());
        let low = means.clone().fold(f64::INFINITY, f64::min);
        let high = means.fold(f64::NEG_INFINITY, f64::max);
        Map {
            down,
            across,
            rows: all[down].clone(),
            columns: all[across].clone(),
            cells,
            low,
            range: (high - low).max(RANGE_MIN.ln()),
        }
    }

    /// Returns the strength of the color of a cell in percent.
    pub(super) fn heat(&self, center: Center) -> f64 {
        (center.mean.ln() - self.low) / self.range * HEAT_MAX
    }
}

/// Ratio of two means that differ by the strongest color, at least: small differences must not look like large ones.
const RANGE_MIN: f64 = 1.1;
/// Strongest color of a cell in percent. Text is legible on it, light or dark.
const HEAT_MAX: f64 = 50.0;

fn map(group: &Group<'_>, keys: [&str; 2]) -> Markup {
    let map = Map::of(group);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(group.name()) {
            table class="heat" {
                caption { (keys[map.down]) " down, " (keys[map.across]) " across" }
                thead { tr { th {} @for column in &map.columns { th scope="col" class="number" { (column) } } } }
                tbody {
                    @for (row, cells) in map.rows.iter().zip(&map.cells) {
                        tr {
                            th scope="row" class="number" { (row) }
                            @for cell in cells {
                                @if let Some(center) = cell {
                                    td class="number" style=(format!("--heat: {:.0}%", map.heat(*center))) {
                                        (number(center.mean))
                                        @if let Some((low, high)) = center.interval {
                                            br; small { (number(low)) " – " (number(high)) }
                                        }
                                    }
                                } @else {
                                    td class="number" { "-" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
