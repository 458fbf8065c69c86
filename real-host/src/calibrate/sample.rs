//! Samples of one figure: their middle, and how far they spread.

use serde::Serialize;

/// Samples, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The number of them.
    pub count: usize,
    /// The middle one.
    pub median_ns: f64,
    /// A quarter of them is shorter.
    pub quarter_ns: f64,
    /// A quarter of them is longer.
    pub three_quarters_ns: f64,
}

impl Sampled {
    /// Returns the summary of `samples`, or `None` if there are none.
    pub fn of(mut samples: Vec<f64>) -> Option<Sampled> {
        samples.retain(|sample| sample.is_finite());
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        let at = |part: f64| samples[(last as f64 * part).round() as usize];
        Some(Sampled {
            count: samples.len(),
            median_ns: at(0.5),
            quarter_ns: at(0.25),
            three_quarters_ns: at(0.75),
        })
    }

    /// In words.
    pub fn shown(&self) -> String {
        format!(
            "median of {} samples, middle half {:.4} to {:.4} ns",
            self.count, self.quarter_ns, self.three_quarters_ns
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_of_samples_is_between_their_quarters_whatever_the_order() {
        let sampled = Sampled::of(vec![5.0, 1.0, f64::NAN, 3.0, 2.0, 4.0]).expect("samples");
        assert_eq!(
            (sampled.quarter_ns, sampled.median_ns, sampled.three_quarters_ns),
            (2.0, 3.0, 4.0)
        );
        assert_eq!(sampled.count, 5);
        assert_eq!(Sampled::of(vec![]), None);
    }
}
