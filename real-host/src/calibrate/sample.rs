//! Summary of the samples of one figure: median and quartiles.

use serde::Serialize;

/// Summary of samples in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// Number of samples.
    pub count: usize,
    /// The median.
    pub median_ns: f64,
    /// The first quartile: a quarter of the samples is shorter.
    pub quarter_ns: f64,
    /// The third quartile: a quarter of the samples is longer.
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

    /// Returns the summary in words.
    pub fn shown(&self) -> String {
        format!(
            "median of {} samples, quartiles {:.4} and {:.4} ns",
            self.count, self.quarter_ns, self.three_quarters_ns
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_do_not_depend_on_the_order_of_samples() {
        let sampled = Sampled::of(vec![5.0, 1.0, f64::NAN, 3.0, 2.0, 4.0]).expect("samples");
        assert_eq!(
            (sampled.quarter_ns, sampled.median_ns, sampled.three_quarters_ns),
            (2.0, 3.0, 4.0)
        );
        assert_eq!(sampled.count, 5);
        assert_eq!(Sampled::of(vec![]), None);
    }
}
