//! Charts of samples: each row shows every sample as a dot, the mean, its standard deviation, and the published figure.

use maud::{Markup, html};

use super::tables::ROWS_MAX;
use super::words::spoken_number;
use crate::display::kinds;
use crate::results::{Case, Results};

/// Height of a row's drawing in pixels.
pub(super) const HEIGHT: f64 = 46.0;
/// Vertical position of the samples.
pub(super) const MIDDLE: f64 = 18.0;
/// Vertical position of the published figure.
const BELOW: f64 = 36.0;
/// Ratio of the largest to the smallest value from which the axis is logarithmic.
const WIDE: f64 = 12.0;

/// Maps values to positions in percent of the width.
pub(super) struct Axis {
    low: f64,
    high: f64,
    pub(super) logarithmic: bool,
}

impl Axis {
    /// Creates an axis for all values of `cases`.
    pub(super) fn of(cases: &[&Case]) -> Option<Axis> {
        let figures = |case: &&Case| -> Vec<f64> {
            let published = case.published.as_ref().map(|published| published.mean);
            case.samples.iter().copied().chain(case.mean).chain(published).collect()
        };
        Axis::over(cases.iter().flat_map(figures))
    }

    /// Creates an axis for the positive ones of `values`; `None` without any.
    pub(super) fn over(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let all: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
        let low = all.iter().copied().reduce(f64::min)?;
        let high = all.iter().copied().reduce(f64::max)?;
        let logarithmic = high / low > WIDE;
        Some(Axis {
            low: if logarithmic { low / 1.25 } else { 0.0 },
            high: high * if logarithmic { 1.25 } else { 1.08 },
            logarithmic,
        })
    }

    /// Returns the position of `value`, 0 to 100. Values outside the axis are at its edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // The marks of the extreme values need room.
        1.5 + share.clamp(0.0, 1.0) * 97.0
    }

    /// Returns round values along the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades =
                (self.low.log10().floor() as i32..=self.high.log10().ceil() as i32).map(|power| 10_f64.powi(power));
            let wide = self.high / self.low > 1000.0;
            let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let ticks = decades.flat_map(|decade| steps.iter().map(move |step| decade * step));
            return ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let rough = self.high / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|step| step * decade)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..=6)
            .map(|count| f64::from(count) * step)
            .filter(|tick| *tick <= self.high)
            .collect()
    }
}

/// Returns `value` as a coordinate.
pub(super) fn share(value: f64) -> String {
    format!("{value:.3}%")
}

/// Renders one chart for each metric.
pub fn charts(results: &Results) -> Markup {
    html! {
        @for cases in kinds(results) {
            section {
                h2 { (heading(results)) ": " (cases[0].metric) ", " (cases[0].unit) }
                @if cases.len() > ROWS_MAX {
                    details { summary { "Every sample of " (cases.len()) " cells" } (chart(&cases)) }
                } @else {
                    (chart(&cases))
                }
            }
        }
    }
}

/// Renders the chart of `cases`, whose metric is the same.
fn chart(cases: &[&Case]) -> Markup {
    html! {
        p class="note" { (cases[0].better) " is better. Every sample is a dot." }
        @if let Some(axis) = Axis::of(cases) {
            (legend(cases))
            div class="chart" {
                @for (index, case) in cases.iter().enumerate() {
                    @let first = index == 0 || cases[index - 1].case != case.case;
                    (row(case, &axis, first))
                }
                (scale(&axis, &cases[0].unit))
            }
            @if axis.logarithmic { p class="note" { "The axis is logarithmic." } }
        } @else {
            p { "No samples." }
        }
    }
}

/// Returns the heading of the charts.
fn heading(results: &Results) -> &'static str {
    let published = results.cases.iter().any(|case| case.published.is_some());
    match (results.are_of_real_host(), published) {
        (true, true) => "Measured on a real host, and published",
        (true, false) => "Measured on a real host",
        (false, true) => "Predicted and published",
        (false, false) => "Samples",
    }
}

fn legend(cases: &[&Case]) -> Markup {
    let published = cases.iter().any(|case| case.published.is_some());
    let entry = |mark: Markup, text: &str| {
        html! { li { svg width="34" height="18" aria-hidden="true" { (mark) } (text) } }
    };
    html! {
        ul class="legend" {
            (entry(html! { circle class="dot" cx="17" cy="9" r="4.5" {} }, "sample"))
            (entry(html! {
                line class="spread" x1="3" x2="31" y1="9" y2="9" {}
                line class="mean" x1="17" x2="17" y1="1" y2="17" {}
            }, "mean ± standard deviation"))
            @if published {
                (entry(html! {
                    line class="published-spread" x1="3" x2="31" y1="9" y2="9" {}
                    path class="published" d="M17 3 L23 9 L17 15 L11 9 Z" {}
                }, "published ± standard deviation"))
                (entry(html! {
                    path class="published calibrated" d="M17 3 L23 9 L17 15 L11 9 Z" {}
                }, "published, and calibrated on"))
            }
        }
    }
}

fn row(case: &Case, axis: &Axis, first: bool) -> Markup {
    let words = in_words(case);
    html! {
        div class={ "row" @if first { " first" } } {
            div class="label" { b { (case.case) } " " (case.variant) " " span class="vm" { (case.vm) } }
            svg class="plot" width="100%" height=(HEIGHT) role="img" aria-label=(words) {
                title { (words) }
                (marks(case, axis, HEIGHT))
            }
        }
    }
}

/// Renders the marks of `case` on a grid of `height` pixels.
pub(super) fn marks(case: &Case, axis: &Axis, height: f64) -> Markup {
    html! {
        @for tick in axis.ticks() {
            @let x = share(axis.at(tick));
            line class="grid" x1=(x) x2=(x) y1="0" y2=(height) {}
        }
        @if let (Some(mean), Some(sd)) = (case.mean, case.sd) {
            line class="spread" x1=(share(axis.at(mean - sd))) x2=(share(axis.at(mean + sd))) y1=(MIDDLE) y2=(MIDDLE) {}
        }
        @for (index, sample) in case.samples.iter().enumerate() {
            // Dots of equal samples must not hide each other.
            @let y = MIDDLE + [0.0, -6.0, 6.0, -3.0, 3.0][index % 5];
            circle class="dot" cx=(share(axis.at(*sample))) cy=(y) r="4.5" {
                title {
                    @if let Some(seed) = case.seeds.get(index) { "seed " (seed) ": " }
                    (spoken_number(*sample, &case.unit))
                }
            }
        }
        @if let Some(mean) = case.mean {
            @let x = share(axis.at(mean));
            line class="mean" x1=(x) x2=(x) y1=(MIDDLE - 12.0) y2=(MIDDLE + 12.0) {
                title { "mean " (spoken_number(mean, &case.unit)) }
            }
        }
        @if let Some(published) = &case.published {
            @if let Some(sd) = published.sd {
                line class="published-spread" x1=(share(axis.at(published.mean - sd)))
                    x2=(share(axis.at(published.mean + sd))) y1=(BELOW) y2=(BELOW) {}
            }
            // A nested drawing puts a shape of fixed size at a share of the width.
            svg x=(share(axis.at(published.mean))) y=(BELOW) overflow="visible" {
                path class={ "published" @if published.calibrate { " calibrated" } } d="M0 -6 L6 0 L0 6 L-6 0 Z" {
                    title { "published " (spoken_number(published.mean, &case.unit)) ", " (published.source) }
                }
            }
        }
    }
}

fn scale(axis: &Axis, unit: &str) -> Markup {
    html! {
        div class="row axis" aria-hidden="true" {
            div class="label" {}
            svg class="plot" width="100%" height="20" { (numbers(axis, unit, [PHONE, SCREEN])) }
        }
    }
}

/// Least widths in pixels of a plot on a phone and on other screens.
const PHONE: f64 = 310.0;
const SCREEN: f64 = 400.0;

/// Renders the labels of the grid's lines, those that have room on a phone and on wider screens of these `widths`.
pub(super) fn numbers(axis: &Axis, unit: &str, widths: [f64; 2]) -> Markup {
    let ticks = axis.ticks();
    let places: Vec<f64> = ticks.iter().map(|tick| axis.at(*tick)).collect();
    let texts: Vec<String> = ticks
        .iter()
        .map(|tick| format!("{} {unit}", tick_text(*tick)))
        .collect();
    let spans = |width: f64| -> Vec<(f64, f64)> {
        let span = |(text, at): (&String, &f64)| {
            let (middle, long) = (at / 100.0 * width, length(text));
            match anchor(*at) {
                "start" => (middle, middle + long),
                "end" => (middle - long, middle),
                _ => (middle - long / 2.0, middle + long / 2.0),
            }
        };
        texts.iter().zip(&places).map(span).collect()
    };
    let [on_phones, on_screens] = widths.map(|width| labels(&spans(width)));
    html! {
        @for (index, text) in texts.iter().enumerate() {
            @if on_screens[index] || on_phones[index] {
                text class=[(!on_phones[index]).then_some("roomy")] x=(share(places[index])) y="14"
                    text-anchor=(anchor(places[index])) { (text) }
            }
        }
    }
}

/// Returns the length of a label in pixels.
pub(super) fn length(text: &str) -> f64 {
    const LETTER: f64 = 7.0;
    text.chars().count() as f64 * LETTER
}

/// Returns which labels are shown, by their left and right ends in pixels: the first, the last, and those between that
/// have room.
pub(super) fn labels(spans: &[(f64, f64)]) -> Vec<bool> {
    /// Distance between labels in pixels.
    const GAP: f64 = 8.0;
    let mut shown: Vec<usize> = Vec::new();
    let last = spans.len().saturating_sub(1);
    for index in [0, last].into_iter().chain(1..last) {
        let is_free = |other: &usize| {
            let ((low, high), (other_low, other_high)) = (spans[index], spans[*other]);
            low >= other_high + GAP || high + GAP <= other_low
        };
        if index < spans.len() && shown.iter().all(is_free) {
            shown.push(index);
        }
    }
    (0..spans.len()).map(|index| shown.contains(&index)).collect()
}

/// Returns the text anchor at a position, so that text at the edges stays inside.
fn anchor(at: f64) -> &'static str {
    match at {
        at if at < 6.0 => "start",
        at if at > 94.0 => "end",
        _ => "middle",
    }
}

pub(super) fn tick_text(tick: f64) -> String {
    if (1e-3..1e6).contains(&tick) || tick == 0.0 {
        let text = format!("{tick:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{tick:e}")
}

/// Returns the row of `case` in words, for screen readers.
pub(super) fn in_words(case: &Case) -> String {
    let mut words = format!("{} {} {}: ", case.case, case.variant, case.vm);
    match case.mean {
        Some(mean) => words.push_str(&format!("mean {}", spoken_number(mean, &case.unit))),
        None => words.push_str("no samples"),
    }
    if let Some(sd) = case.sd {
        words.push_str(&format!(", standard deviation {}", spoken_number(sd, &case.unit)));
    }
    words.push_str(&format!(", {} samples", case.samples.len()));
    if let Some(published) = &case.published {
        words.push_str(&format!(", published {}", spoken_number(published.mean, &case.unit)));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_ticks_and_keep_their_order() {
        for (low, high, logarithmic) in [
            (0.0, 41.0, false),
            (30.0, 8000.0, true),
            (1e-9, 1e9, true),
            (0.0, 1e-7, false),
        ] {
            let axis = Axis { low, high, logarithmic };
            let ticks = axis.ticks();
            assert!((2..=20).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(ticks.is_sorted() && ticks.iter().all(|tick| (low..=high).contains(tick)));
            let places: Vec<f64> = ticks.iter().map(|tick| axis.at(*tick)).collect();
            assert!(places.is_sorted() && places.iter().all(|place| (0.0..=100.0).contains(place)));
        }
        let axis = Axis {
            low: 1.0,
            high: 10.0,
            logarithmic: true,
        };
        assert!(
            axis.at(-5.0) >= 0.0 && axis.at(f64::MAX) <= 100.0,
            "what is outside is at the edge"
        );
    }
}
