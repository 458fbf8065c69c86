//! What a comparison found: size beside significance.

use serde::Serialize;

use crate::stats::{Comparison, Verdict};

/// What a comparison of B with A found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgment {
    /// B is proven better, by half a percent or more.
    Better,
    /// B is proven worse, by half a percent or more.
    Worse,
    /// The whole interval is within half a percent, or the change that is proven is.
    Equal,
    /// Every pair of samples is equal, bit for bit.
    Identical,
    /// The interval contains 1.
    NotProven,
    /// Fewer than two samples on a side.
    TooFewSamples,
}

/// Smallest change of a geometric mean that is called better or worse, as a share.
const SIZE_MIN: f64 = 0.005;

impl Judgment {
    /// Returns the judgment of `comparison`. `better`: which values are better, `lower` or `higher`.
    pub fn of(comparison: &Comparison, better: &str) -> Judgment {
        let is_small = |ratio: f64| (ratio - 1.0).abs() < SIZE_MIN;
        match comparison.verdict {
            Verdict::Identical => Judgment::Identical,
            Verdict::TooFewSamples => Judgment::TooFewSamples,
            _ if comparison
                .interval
                .is_some_and(|(low, high)| is_small(low) && is_small(high)) =>
            {
                Judgment::Equal
            }
            Verdict::NoDifferenceProven => Judgment::NotProven,
            Verdict::Lower | Verdict::Higher if is_small(comparison.ratio) => Judgment::Equal,
            Verdict::Lower if better == "lower" => Judgment::Better,
            Verdict::Higher if better != "lower" => Judgment::Better,
            Verdict::Lower | Verdict::Higher => Judgment::Worse,
        }
    }

    /// Returns whether B is proven better (`true`), proven worse (`false`), or neither.
    pub fn better(self) -> Option<bool> {
        match self {
            Judgment::Better => Some(true),
            Judgment::Worse => Some(false),
            _ => None,
        }
    }

    /// Returns the judgment in words.
    pub fn words(self) -> &'static str {
        match self {
            Judgment::Better => "better",
            Judgment::Worse => "worse",
            Judgment::Equal => "equal",
            Judgment::Identical => "another history with the same samples",
            Judgment::NotProven => "no difference proven",
            Judgment::TooFewSamples => "one sample proves nothing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Method;

    fn judged(ratio: f64, interval: (f64, f64), better: &str) -> Judgment {
        let verdict = match interval {
            (_, high) if high < 1.0 => Verdict::Lower,
            (low, _) if low > 1.0 => Verdict::Higher,
            _ => Verdict::NoDifferenceProven,
        };
        let comparison = Comparison {
            ratio,
            interval: Some(interval),
            ratio_of_means: ratio,
            method: Method::PairedT,
            freedom: 4.0,
            verdict,
        };
        Judgment::of(&comparison, better)
    }

    #[test]
    fn what_is_proven_but_small_is_equal() {
        assert_eq!(judged(1.000_3, (1.000_1, 1.000_4), "lower"), Judgment::Equal);
        assert_eq!(judged(0.996, (0.993, 0.999), "lower"), Judgment::Equal);
        assert_eq!(judged(1.0, (0.999_6, 1.000_4), "lower"), Judgment::Equal);
        assert_eq!(judged(1.001, (0.997, 1.004), "lower"), Judgment::Equal);
        assert_eq!(judged(1.0, (0.99, 1.01), "lower"), Judgment::NotProven);
        assert_eq!(judged(0.99, (0.985, 0.995), "lower"), Judgment::Better);
        assert_eq!(judged(0.99, (0.985, 0.995), "higher"), Judgment::Worse);
        assert_eq!(judged(1.2, (1.1, 1.3), "higher"), Judgment::Better);
    }
}
