//! Stacked bars that show where the vCPUs' time went, with similar causes in one group.

use maud::{Markup, html};

use super::tables::{ROWS_MAX, by_cell, grid};
use super::words::spoken;
use crate::display::percent;
use crate::explain::{Explanation, Row};

/// A group of causes, its class in the style sheet and its name.
struct Group {
    class: &'static str,
    name: &'static str,
    causes: &'static [&'static str],
}

/// Groups in the order of the bars: work, then time that costs work, then time that costs nothing.
const GROUPS: [Group; 14] = [
    Group {
        class: "c-useful",
        name: "useful work",
        causes: &["useful"],
    },
    Group {
        class: "c-critical",
        name: "critical sections",
        causes: &["critical_section"],
    },
    Group {
        class: "c-running",
        name: "spinning, holder runs",
        causes: &["spin_running_holder"],
    },
    Group {
        class: "c-holder",
        name: "spinning behind a preempted or throttled holder",
        causes: &["spin_preempted_holder", "spin_throttled_holder"],
    },
    Group {
        class: "c-waiter",
        name: "spinning behind a preempted or throttled waiter",
        causes: &["spin_preempted_waiter", "spin_throttled_waiter"],
    },
    Group {
        class: "c-ipi",
        name: "waiting for IPI answers",
        causes: &["ipi_running_target", "ipi_preempted_target"],
    },
    Group {
        class: "c-halted",
        name: "halted for a lock",
        causes: &["halted_for_lock"],
    },
    Group {
        class: "c-cache",
        name: "cache transfers and cold caches",
        causes: &["cache_transfer", "cold_caches"],
    },
    Group {
        class: "c-core",
        name: "slowed by the core's other threads",
        causes: &["shared_core"],
    },
    Group {
        class: "c-remote",
        name: "memory on another node",
        causes: &["remote_memory"],
    },
    Group {
        class: "c-stopped",
        name: "stopped or throttled for live migrations",
        causes: &["migration_stop", "migration_throttle"],
    },
    Group {
        class: "c-ready",
        name: "ready, without a pCPU",
        causes: &["runnable", "wake_latency"],
    },
    Group {
        class: "c-throttled",
        name: "throttled: the quota is spent",
        causes: &["throttled"],
    },
    Group {
        class: "c-idle",
        name: "idle",
        causes: &["idle", "off"],
    },
];
/// Causes in no other group: exits, interrupts, host code.
const REST: (&str, &str) = ("c-rest", "exits, interrupts and host code");

/// A part of a bar.
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    pub(super) share: f64,
}

pub(super) fn parts(row: &Row) -> Vec<Part> {
    let of = |causes: &[&str]| -> f64 {
        let mine = row
            .lost_time
            .iter()
            .filter(|(cause, _)| causes.contains(&cause.as_str()));
        mine.map(|(_, share)| share).sum()
    };
    let mut parts: Vec<Part> = GROUPS
        .iter()
        .map(|group| Part {
            class: group.class,
            name: group.name,
            share: of(group.causes),
        })
        .collect();
    let grouped = |cause: &str| GROUPS.iter().any(|group| group.causes.contains(&cause));
    let rest = row.lost_time.iter().filter(|(cause, _)| !grouped(cause));
    let rest = Part {
        class: REST.0,
        name: REST.1,
        share: rest.map(|(_, share)| share).sum(),
    };
    // Before the time that costs nothing.
    parts.insert(GROUPS.len() - 3, rest);
    parts
}

/// Renders the bars, with the exact shares below.
pub fn bars(explanation: &Explanation) -> Markup {
    let rows: Vec<&Row> = explanation
        .rows
        .iter()
        .filter(|row| !row.lost_time.is_empty())
        .collect();
    let drawn: Vec<Vec<Part>> = rows.iter().map(|row| parts(row)).collect();
    let seen = |index: usize| drawn.iter().any(|parts| parts[index].share > 0.0);
    html! {
        @if let Some(all) = drawn.first() {
            section {
                h2 { "Where the vCPUs' time went" }
                ul class="legend" {
                    @for (index, part) in all.iter().enumerate() {
                        @if seen(index) {
                            li { svg width="18" height="14" aria-hidden="true" { rect class=(part.class) width="18" height="14" {} } (part.name) }
                        }
                    }
                }
                @if rows.len() > ROWS_MAX {
                    details { summary { "The time of " (rows.len()) " guests" } (chart(&rows, &drawn)) }
                } @else {
                    (chart(&rows, &drawn))
                }
                details {
                    summary { "Every cause, per cent" }
                    (exact(&rows))
                }
            }
        }
    }
}

fn chart(rows: &[&Row], drawn: &[Vec<Part>]) -> Markup {
    html! {
        div class="chart" {
            @for (index, (row, parts)) in rows.iter().zip(drawn).enumerate() {
                @let first = index == 0 || rows[index - 1].case != row.case;
                (bar(row, parts, first))
            }
        }
    }
}

/// Returns the bar of `row` in words, for screen readers.
pub(super) fn in_words(row: &Row, parts: &[Part]) -> String {
    let said: Vec<String> = parts
        .iter()
        .filter(|part| part.share > 0.0)
        .map(|part| spoken(part.name, part.share))
        .collect();
    format!("{} {} {}: {}", row.case, row.variant, row.vm, said.join(", "))
}

fn bar(row: &Row, parts: &[Part], first: bool) -> Markup {
    let words = in_words(row, parts);
    html! {
        div class={ "row" @if first { " first" } @if !row.measured { " beside" } } {
            div class="label" { b { (row.case) } " " (row.variant) " " span class="vm" { (row.vm) } }
            svg class="plot bar" width="100%" height="26" role="img" aria-label=(words) {
                title { (words) }
                (filling(parts, 26))
            }
        }
    }
}

/// Renders the parts of a bar of `height` pixels.
pub(super) fn filling(parts: &[Part], height: u32) -> Markup {
    let mut at = 0.0;
    let places: Vec<(f64, &Part)> = parts
        .iter()
        .map(|part| {
            let start = at;
            at += part.share;
            (start, part)
        })
        .collect();
    html! {
        @for (start, part) in places {
            @if part.share > 0.0 {
                rect class=(part.class) x=(format!("{:.4}%", start * 100.0)) width=(format!("{:.4}%", part.share * 100.0)) height=(height) {
                    title { (spoken(part.name, part.share)) }
                }
            }
        }
    }
}

fn exact(rows: &[&Row]) -> Markup {
    let mut causes: Vec<(&str, f64)> = Vec::new();
    for (cause, share) in rows.iter().flat_map(|row| &row.lost_time) {
        match causes.iter_mut().find(|(known, _)| known == cause) {
            Some((_, largest)) => *largest = largest.max(*share),
            None => causes.push((cause, *share)),
        }
    }
    causes.retain(|(_, largest)| *largest > 0.0);
    causes.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let names: Vec<String> = causes.iter().map(|(cause, _)| (*cause).to_owned()).collect();
    let sheet = by_cell("cause", rows, &names, |row, index| {
        let found = row.lost_time.iter().find(|(name, _)| *name == names[index]);
        percent(found.map_or(0.0, |(_, share)| *share))
    });
    grid("Share of the vCPUs' time by cause, per cent", &sheet)
}

#[cfg(test)]
mod tests {
    use holdfast_sim::Cause;

    use super::*;

    #[test]
    fn groups_share_no_cause_and_parts_sum_to_the_whole() {
        let mut seen = Vec::new();
        for cause in GROUPS.iter().flat_map(|group| group.causes) {
            assert!(!seen.contains(cause), "{cause} twice");
            seen.push(cause);
        }
        let share = 1.0 / Cause::ALL.len() as f64;
        let row = Row {
            case: String::new(),
            variant: String::new(),
            vm: String::new(),
            measured: true,
            lost_time: Cause::ALL
                .iter()
                .map(|cause| (cause.name().to_owned(), share))
                .collect(),
            operators: None,
            service: None,
            counters: Vec::new(),
            locks: Vec::new(),
            blocked: Vec::new(),
            convoys: None,
            halts: None,
            seeds: Vec::new(),
            host_figures: None,
        };
        let sum: f64 = parts(&row).iter().map(|part| part.share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
