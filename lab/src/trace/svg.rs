//! Draws a recording as an SVG file, for other pages: what each vCPU did, pixel by pixel.
//!
//! A pixel shows what took most of its time. Guests that are idle during the whole recording are left out. The timeline
//! for ui.perfetto.dev is complete.

use holdfast_machine::Time;
use holdfast_sim::timeline::{Behind, Doing, Lock, Place, Timeline, VcpuTimeline};
use maud::{Markup, html};

use crate::report::{LABELS, PLOT, frame, legend_of};

/// Height in pixels of a vCPU's row and of the bar in it.
const ROW: u32 = 15;
const BAR: u32 = 12;
/// Height in pixels of a guest's name above its vCPUs.
const HEAD: u32 = 22;

/// Kinds of vCPU time: class in the style sheet, name in the legend.
const KINDS: [(&str, &str); 12] = [
    ("c-useful", "runs"),
    ("c-critical", "holds a lock and runs"),
    ("c-running", "spins, the holder runs"),
    ("c-holder", "spins behind a holder without a pCPU"),
    ("c-waiter", "spins behind a waiter without a pCPU"),
    ("c-ipi", "waits for the answer to an IPI"),
    ("c-rest", "exits and host code"),
    ("c-lhp", "PREEMPTED, holds a lock"),
    ("c-lwp", "preempted, waits for a lock"),
    ("c-ready", "preempted, or woken and not yet on a pCPU"),
    ("c-throttled", "throttled"),
    ("c-halted", "halted for a lock"),
];

/// Returns the index in [`KINDS`], or `None` for an idle vCPU, which is not drawn.
fn of_place(place: Place) -> Option<usize> {
    match place {
        Place::Running { .. } => None,
        Place::Preempted { holds: Some(_), .. } => Some(7),
        Place::Preempted { awaits: Some(_), .. } => Some(8),
        Place::Preempted { .. } | Place::Woken => Some(9),
        Place::Throttled { .. } => Some(10),
        Place::Halted { awaits: Some(_) } => Some(11),
        Place::Halted { .. } | Place::PauseSleep | Place::Off => None,
    }
}

fn of_doing(doing: Doing) -> Option<usize> {
    match doing {
        Doing::User | Doing::Kernel | Doing::Interrupt => Some(0),
        Doing::Critical(_) => Some(1),
        Doing::Spin { behind, .. } => Some(match behind {
            Behind::RunningHolder(_) | Behind::HandOver => 2,
            Behind::PreemptedHolder(_) | Behind::ThrottledHolder(_) => 3,
            Behind::PreemptedWaiter(_) | Behind::ThrottledWaiter(_) => 4,
        }),
        Doing::AwaitsIpi(_) => Some(5),
        Doing::Out(_) => Some(6),
        Doing::IdleLoop => None,
    }
}

/// A run of pixels of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    /// The pixel after the last.
    end: u32,
    kind: usize,
}

/// Returns the pixels of a row.
fn runs(vcpu: &VcpuTimeline, from: Time, to: Time) -> Vec<Run> {
    let width = to.since(from).0.max(1);
    let mut shares = vec![[0u64; KINDS.len()]; PLOT as usize];
    let places = vcpu
        .places
        .iter()
        .map(|span| (span.start, span.end, of_place(span.what)));
    let doings = vcpu
        .doings
        .iter()
        .map(|span| (span.start, span.end, of_doing(span.what)));
    for (start, end, kind) in places.chain(doings) {
        let Some(kind) = kind else { continue };
        // Fractions of a pixel, as many as there are picoseconds in the window.
        let scaled = |time: Time| u128::from(time.since(from).0) * u128::from(PLOT);
        let (mut at, end) = (scaled(start), scaled(end));
        while at < end {
            let pixel = (at / u128::from(width)) as usize;
            let until = end.min((pixel as u128 + 1) * u128::from(width));
            if let Some(share) = shares.get_mut(pixel) {
                share[kind] += (until - at) as u64;
            }
            at = until;
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for (pixel, share) in shares.iter().enumerate() {
        let pixel = pixel as u32;
        let kind = (0..KINDS.len()).rev().max_by_key(|kind| share[*kind]);
        // A pixel that is mostly idle counts as idle.
        let nothing = width.saturating_sub(share.iter().sum());
        let Some(kind) = kind.filter(|kind| share[*kind] > nothing) else {
            continue;
        };
        match runs.last_mut() {
            Some(last) if last.end == pixel && last.kind == kind => last.end = pixel + 1,
            _ => runs.push(Run {
                first: pixel,
                end: pixel + 1,
                kind,
            }),
        }
    }
    runs
}

/// Returns the times in which a vCPU without a pCPU held a lock, in words.
fn preempted_holders(vcpu: &VcpuTimeline) -> Vec<String> {
    let class = |lock: Lock| lock.class.map_or("a lock", |class| class.name());
    let held = vcpu.places.iter().filter_map(|span| match span.what {
        Place::Preempted { holds: Some(lock), .. } => Some(format!(
            "holds {} without a pCPU from {:.3} to {:.3} ms",
            class(lock),
            span.start.nanos() as f64 / 1e6,
            span.end.nanos() as f64 / 1e6
        )),
        _ => None,
    });
    held.collect()
}

/// Returns the drawing of `timeline`.
pub fn svg(title: &str, timeline: &Timeline) -> String {
    let milliseconds = |time: Time| time.nanos() as f64 / 1e6;
    let (from, to) = (timeline.from, timeline.to);
    let rows: Vec<(&VcpuTimeline, Vec<Run>)> = timeline.vcpus.iter().map(|vcpu| (vcpu, runs(vcpu, from, to))).collect();
    let seen = |kind: usize| rows.iter().any(|(_, runs)| runs.iter().any(|run| run.kind == kind));
    let legend: Vec<(&str, &str)> = KINDS
        .iter()
        .enumerate()
        .filter(|(kind, _)| seen(*kind))
        .map(|(_, kind)| *kind)
        .collect();
    let (marks, used) = legend_of(&legend, 62);
    let mut y = 66 + used;
    let mut drawn: Vec<Markup> = Vec::new();
    for (vm, name) in timeline.vms.iter().enumerate() {
        if rows.iter().all(|(vcpu, runs)| vcpu.vm != vm as u32 || runs.is_empty()) {
            continue;
        }
        drawn.push(html! { text class="case" x="14" y=(y + 15) { "guest " (name) } });
        y += HEAD;
        for (vcpu, runs) in rows.iter().filter(|(vcpu, _)| vcpu.vm == vm as u32) {
            drawn.push(row(vcpu, runs, y));
            y += ROW;
        }
    }
    let ticks: Vec<f64> = ticks(milliseconds(from), milliseconds(to));
    let x = |tick: f64| (tick - milliseconds(from)) / (milliseconds(to) - milliseconds(from)) * f64::from(PLOT);
    let content = html! {
        text class="soft" x="14" y="46" {
            (format!("virtual time {:.1} to {:.1} ms since power-on; a pixel shows what took most of its time", milliseconds(from), milliseconds(to)))
        }
        (marks)
        @for part in &drawn { (part) }
        svg class="axis" x=(LABELS) y=(y) width=(PLOT) height="20" overflow="visible" {
            @for tick in ticks {
                line class="grid" x1=(format!("{:.1}", x(tick))) x2=(format!("{:.1}", x(tick))) y1="0" y2="5" {}
                text x=(format!("{:.1}", x(tick))) y="17" text-anchor=(if x(tick) + 30.0 > f64::from(PLOT) { "end" } else { "middle" }) { (tick) " ms" }
            }
        }
    };
    frame(title, title, y + 30, &content)
}

fn row(vcpu: &VcpuTimeline, runs: &[Run], y: u32) -> Markup {
    html! {
        text class="soft" x="30" y=(y + 10) { "vCPU " (vcpu.number) }
        svg x=(LABELS) y=(y) width=(PLOT) height=(BAR) {
            title { "vCPU " (vcpu.number) @for held in preempted_holders(vcpu) { "; " (held) } }
            @for run in runs {
                rect class=(KINDS[run.kind].0) x=(run.first) width=(run.end - run.first) height=(BAR) {}
            }
        }
    }
}

/// Returns a few round numbers of milliseconds.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from).max(1e-6) / 8.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * decade)
        .into_iter()
        .find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() as u64;
    // Whole multiples, so that no rounding errors of a sum are visible.
    (first..first + 20)
        .map(|count| (count as f64 * step * 1e6).round() / 1e6)
        .take_while(|tick| *tick <= to)
        .collect()
}

#[cfg(test)]
mod tests {
    use holdfast_sim::timeline::Span;

    use super::*;

    fn span<T>(start: u64, end: u64, what: T) -> Span<T> {
        Span {
            start: Time(start),
            end: Time(end),
            what,
        }
    }

    #[test]
    fn pixels_show_what_took_most_of_their_time_and_leave_out_who_has_nothing_to_do() {
        let unit = 1000;
        let end = u64::from(PLOT) * unit;
        let running = Place::Running { pcpu: 0 };
        let vcpu = VcpuTimeline {
            places: vec![
                span(0, 10 * unit + 400, running),
                span(10 * unit + 400, 20 * unit, Place::Woken),
                span(20 * unit, end, Place::Off),
            ],
            doings: vec![span(0, 10 * unit + 400, Doing::User)],
            ..VcpuTimeline::default()
        };
        let shown = runs(&vcpu, Time(0), Time(end));
        let run = |first, end, kind| Run { first, end, kind };
        assert_eq!(shown, [run(0, 10, 0), run(10, 20, 9)]);
    }

    #[test]
    fn ticks_are_few_round_and_inside() {
        for (from, to) in [(190.0, 250.0), (0.0, 0.01), (3.3, 10_000.0)] {
            let ticks = ticks(from, to);
            assert!((3..=10).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.iter().all(|tick| (from..=to).contains(tick)));
        }
    }
}
