//! Statistics of samples: summaries, and tests whether two sets of samples differ.
//!
//! Elapsed times and rates are positive, and under overcommit their noise multiplies (a convoy makes a run several
//! times longer, not some seconds). So sets are compared by the *ratio* of their geometric means: Student's t on
//! logarithms, at 95 % confidence, paired by seed where both sides ran the same seeds, else Welch's. Where the noise is
//! small this is the same as a comparison of means.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Summary of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); `None` for one sample.
    pub sd: Option<f64>,
    /// Median sample.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// Returns the summary of `samples`, or `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        let (mean, sd) = moments(&sorted);
        Some(Summary {
            mean,
            sd,
            median,
            min,
            max,
        })
    }
}

/// Returns mean and sample standard deviation of a set that is not empty.
fn moments(samples: &[f64]) -> (f64, Option<f64>) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (samples.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

/// Largest relative difference between a figure and what its samples give: the error of a sum in another order.
pub(crate) const ROUNDING: f64 = 1e-9;

/// Returns which of mean, deviation, median, minimum and maximum `samples` do not give, or `None` if they give all.
pub(crate) fn misfit(samples: &[f64], figures: [Option<f64>; 5]) -> Option<String> {
    let summary = Summary::of(samples);
    let expected = [
        summary.map(|all| all.mean),
        summary.and_then(|all| all.sd),
        summary.map(|all| all.median),
        summary.map(|all| all.min),
        summary.map(|all| all.max),
    ];
    let size = summary.map_or(0.0, |all| all.max.abs());
    let fits = |found: Option<f64>, expected: Option<f64>| match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= size * ROUNDING,
        (found, expected) => found == expected,
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
    let names = ["mean", "sd", "median", "min", "max"].into_iter();
    let mut pairs = names.zip(figures.into_iter().zip(expected));
    let (name, (found, expected)) = pairs.find(|(_, (found, expected))| !fits(*found, *expected))?;
    let (found, expected) = (shown(found), shown(expected));
    Some(format!(
        "found the {name} {found}, expected {expected}, which the samples give"
    ))
}

/// Geometric mean of a set of samples. Ratios of two of them are what [`compare`] compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Center {
    /// Geometric mean.
    pub mean: f64,
    /// 95 % confidence interval of it, by Student's t on logarithms; `None` for one sample.
    pub interval: Option<(f64, f64)>,
}

impl Center {
    /// Returns the geometric mean of `samples`, or `None` if there are none, or one is not positive.
    pub fn of(samples: &[f64]) -> Option<Center> {
        if !usable(samples) {
            return None;
        }
        let logs = moments_of(&logarithms(samples));
        let reach = logs
            .sd
            .map(|sd| quantile(logs.count - 1.0, CONFIDENCE) * sd / logs.count.sqrt());
        Some(Center {
            mean: logs.mean.exp(),
            interval: reach.map(|reach| ((logs.mean - reach).exp(), (logs.mean + reach).exp())),
        })
    }
}

/// Returns whether there are samples, and all are positive.
fn usable(samples: &[f64]) -> bool {
    !samples.is_empty() && samples.iter().all(|sample| *sample > 0.0 && sample.is_finite())
}

fn logarithms(samples: &[f64]) -> Vec<f64> {
    samples.iter().map(|sample| sample.ln()).collect()
}

/// Method of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Paired by seed.
    PairedT,
    /// Welch's unequal-variances test.
    WelchT,
}

/// Conclusion of a comparison, at 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every pair of samples is equal, bit for bit.
    Identical,
    /// B is lower than A.
    Lower,
    /// B is higher than A.
    Higher,
    /// The interval contains 1.
    NoDifferenceProven,
    /// Fewer than two samples on a side: nothing can be said.
    TooFewSamples,
}

/// Comparison of B with A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Geometric mean of B over that of A.
    pub ratio: f64,
    /// Confidence interval of that ratio, at 95 % for all comparisons that were made together.
    pub interval: Option<(f64, f64)>,
    /// Mean of B over mean of A.
    pub ratio_of_means: f64,
    /// The method of the comparison.
    pub method: Method,
    /// Degrees of freedom.
    pub freedom: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

/// Samples with their seeds.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// The seeds.
    pub seeds: &'a [u64],
    /// Samples, in the same order; positive.
    pub values: &'a [f64],
    /// Whether samples of two sets with the same seed are related. They are not on a real host, where chance is not
    /// seeded.
    pub paired: bool,
}

const CONFIDENCE: f64 = 0.95;

/// Compares `b` with `a` at 95 % confidence. Returns `None` if a side has no sample, or a sample that is not positive.
pub fn compare(a: Samples<'_>, b: Samples<'_>) -> Option<Comparison> {
    compare_among(1, a, b)
}

/// Compares as [`compare`] does, as one of `count` comparisons: with 95 % confidence all of their intervals together
/// contain the true ratios (Bonferroni's correction).
pub fn compare_among(count: usize, a: Samples<'_>, b: Samples<'_>) -> Option<Comparison> {
    if !usable(a.values) || !usable(b.values) {
        return None;
    }
    let (log_a, log_b) = (logarithms(a.values), logarithms(b.values));
    let same_seeds = a.seeds == b.seeds;
    let paired = same_seeds && a.paired && b.paired;
    let (ratio, error, freedom) = if paired {
        paired_t(&log_a, &log_b)
    } else {
        welch(moments_of(&log_a), moments_of(&log_b))
    };
    let interval = error.map(|error| {
        let reach = quantile(freedom, 1.0 - (1.0 - CONFIDENCE) / count.max(1) as f64) * error;
        ((ratio - reach).exp(), (ratio + reach).exp())
    });
    let verdict = match interval {
        _ if same_seeds && a.values == b.values => Verdict::Identical,
        None => Verdict::TooFewSamples,
        Some((_, high)) if high < 1.0 => Verdict::Lower,
        Some((low, _)) if low > 1.0 => Verdict::Higher,
        Some(_) => Verdict::NoDifferenceProven,
    };
    let ratio_of_means = moments(b.values).0 / moments(a.values).0;
    let method = if paired { Method::PairedT } else { Method::WelchT };
    Some(Comparison {
        ratio: ratio.exp(),
        interval,
        ratio_of_means,
        method,
        freedom,
        verdict,
    })
}

/// Returns mean difference, its standard error, and degrees of freedom.
fn paired_t(a: &[f64], b: &[f64]) -> (f64, Option<f64>, f64) {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    let (mean, sd) = moments(&differences);
    let count = differences.len() as f64;
    (mean, sd.map(|sd| sd / count.sqrt()), count - 1.0)
}

/// Mean, standard deviation and number of a set.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation, if there is one.
    pub sd: Option<f64>,
    /// Number of samples.
    pub count: f64,
}

fn moments_of(samples: &[f64]) -> Moments {
    let (mean, sd) = moments(samples);
    Moments {
        mean,
        sd,
        count: samples.len() as f64,
    }
}

/// Returns difference of means, its standard error, and degrees of freedom (Welch and Satterthwaite).
fn welch(a: Moments, b: Moments) -> (f64, Option<f64>, f64) {
    let difference = b.mean - a.mean;
    let (Some(sd_a), Some(sd_b)) = (a.sd, b.sd) else {
        return (difference, None, 0.0);
    };
    let (va, vb) = (sd_a * sd_a / a.count, sd_b * sd_b / b.count);
    let spread = va * va / (a.count - 1.0) + vb * vb / (b.count - 1.0);
    let freedom = if spread > 0.0 {
        (va + vb).powi(2) / spread
    } else {
        a.count + b.count - 2.0
    };
    (difference, Some((va + vb).sqrt()), freedom)
}

/// Compares published means, whose samples are not known.
pub fn compare_published(a: Moments, b: Moments) -> Verdict {
    let (difference, error, freedom) = welch(a, b);
    match error.map(|error| quantile(freedom, CONFIDENCE) * error) {
        None => Verdict::TooFewSamples,
        Some(reach) if difference > reach => Verdict::Higher,
        Some(reach) if -difference > reach => Verdict::Lower,
        Some(_) => Verdict::NoDifferenceProven,
    }
}

/// Returns a two-sided quantile of Student's t.
fn quantile(freedom: f64, confidence: f64) -> f64 {
    // Less than one degree of freedom (variances near zero) counts as one, which gives the widest interval.
    let student =
        StudentsT::new(0.0, 1.0, freedom.max(1.0)).expect("a positive scale and at least one degree of freedom");
    student.inverse_cdf(f64::midpoint(1.0, confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples<'a>(seeds: &'a [u64], values: &'a [f64]) -> Samples<'a> {
        Samples {
            seeds,
            values,
            paired: true,
        }
    }

    #[test]
    fn summary_of_known_samples() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("samples");
        assert_eq!(
            (summary.mean, summary.median, summary.min, summary.max),
            (2.5, 2.5, 1.0, 4.0)
        );
        assert!((summary.sd.expect("four samples") - 1.290_994_448_735_805_6).abs() < 1e-12);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[7.0]).expect("one").sd, None);
    }

    /// Asserts that a comparison has these figures: ratio, interval, ratio of means, degrees of freedom.
    fn assert_figures(comparison: &Comparison, expected: [f64; 5]) {
        let (low, high) = comparison.interval.expect("enough samples");
        let figures = [
            comparison.ratio,
            low,
            high,
            comparison.ratio_of_means,
            comparison.freedom,
        ];
        for (figure, expected) in figures.into_iter().zip(expected) {
            assert!((figure - expected).abs() < 1e-5, "{comparison:?}, not {expected}");
        }
    }

    // The figures of these two tests come from other code, which integrates the density of Student's t.
    #[test]
    fn paired_figures_match_other_code() {
        let seeds = [1, 2, 3, 4];
        let (a, b) = ([10.0, 12.0, 9.0, 11.0], [21.0, 22.0, 20.0, 25.0]);
        let comparison = compare(samples(&seeds, &a), samples(&seeds, &b)).expect("positive samples");
        assert_figures(&comparison, [2.099_901, 1.801_223, 2.448_107, 88.0 / 42.0, 3.0]);
    }

    #[test]
    fn unpaired_figures_match_other_code() {
        let (a, b) = ([10.0, 12.0, 9.0, 11.0], [21.0, 30.0, 20.0, 25.0, 19.0]);
        let comparison = compare(samples(&[1, 2, 3, 4], &a), samples(&[5, 6, 7, 8, 9], &b)).expect("positive samples");
        assert_figures(&comparison, [2.171_244, 1.694_751, 2.781_708, 23.0 / 10.5, 6.838_700]);
    }

    #[test]
    fn samples_without_spread_have_all_degrees_of_freedom() {
        let (a, b) = ([2.0; 3], [4.0; 5]);
        let comparison = compare(samples(&[1, 2, 3], &a), samples(&[4, 5, 6, 7, 8], &b)).expect("positive samples");
        assert_figures(&comparison, [2.0, 2.0, 2.0, 2.0, 6.0]);
        assert_eq!(comparison.verdict, Verdict::Higher);
    }

    #[test]
    fn published_means_need_a_spread_to_differ() {
        let m = |mean, sd| Moments { mean, sd, count: 2.0 };
        assert_eq!(
            compare_published(m(1.0, None), m(9.0, Some(0.1))),
            Verdict::TooFewSamples
        );
        // Equal means differ in no direction, with or without a spread.
        for sd in [0.0, 0.1] {
            assert_eq!(
                compare_published(m(1.0, Some(sd)), m(1.0, Some(sd))),
                Verdict::NoDifferenceProven
            );
        }
    }

    // Quantiles from tables of Student's t.
    #[test]
    fn quantiles_match_the_tables() {
        for (freedom, expected) in [(1.0, 12.706), (4.0, 2.776), (18.0, 2.101), (1000.0, 1.962)] {
            assert!(
                (quantile(freedom, CONFIDENCE) - expected).abs() < 1e-3,
                "{freedom}: {}",
                quantile(freedom, CONFIDENCE)
            );
        }
    }

    // The published verdicts of pgbench: 10 runs each, 95 %.
    #[test]
    fn published_verdicts_are_reproduced() {
        let m = |mean, sd| Moments {
            mean,
            sd: Some(sd),
            count: 10.0,
        };
        assert_eq!(
            compare_published(m(7594.97, 128.77), m(7434.93, 144.59)),
            Verdict::Lower
        );
        assert_eq!(
            compare_published(m(51993.5, 817.4), m(51946.6, 228.5)),
            Verdict::NoDifferenceProven
        );
        assert_eq!(compare_published(m(50275.2, 616.8), m(51512.4, 469.2)), Verdict::Higher);
    }

    #[test]
    fn noise_that_multiplies_hides_no_large_ratio() {
        let seeds = [1, 2, 3, 4, 5];
        // Means with their plain spread would prove nothing: B's worst run is longer than A's best.
        let a = [100.0, 400.0, 900.0, 150.0, 2000.0];
        let b = [20.0, 75.0, 200.0, 29.0, 390.0];
        let comparison = compare(samples(&seeds, &a), samples(&seeds, &b)).expect("positive samples");
        assert_eq!(comparison.method, Method::PairedT);
        assert_eq!(comparison.verdict, Verdict::Lower);
        let (low, high) = comparison.interval.expect("five pairs");
        assert!(low < 0.2 && 0.2 < high && high < 0.25, "{low} {high}");
    }

    #[test]
    fn equal_noise_proves_nothing() {
        let a = [100.0, 110.0, 90.0];
        let b = [105.0, 95.0, 102.0];
        let comparison = compare(samples(&[1, 2, 3], &a), samples(&[4, 5, 6], &b)).expect("positive samples");
        assert_eq!(
            (comparison.method, comparison.verdict),
            (Method::WelchT, Verdict::NoDifferenceProven)
        );
        let same = compare(samples(&[1, 2, 3], &a), samples(&[1, 2, 3], &a)).expect("positive samples");
        assert_eq!(same.verdict, Verdict::Identical);
    }

    #[test]
    fn seeds_pair_no_samples_that_chance_made() {
        let seeds = [1, 2, 3];
        let (a, b) = ([10.0, 20.0, 30.0], [11.0, 22.0, 33.0]);
        let simulated = compare(samples(&seeds, &a), samples(&seeds, &b)).expect("positive samples");
        assert_eq!(
            (simulated.method, simulated.verdict),
            (Method::PairedT, Verdict::Higher)
        );
        let measured = Samples {
            paired: false,
            ..samples(&seeds, &b)
        };
        let mixed = compare(samples(&seeds, &a), measured).expect("positive samples");
        assert_eq!(
            (mixed.method, mixed.verdict),
            (Method::WelchT, Verdict::NoDifferenceProven)
        );
        let same = compare(measured, measured).expect("positive samples");
        assert_eq!(same.verdict, Verdict::Identical);
    }

    #[test]
    fn one_sample_says_nothing() {
        let comparison = compare(samples(&[1], &[3.0]), samples(&[1], &[4.0])).expect("positive samples");
        assert_eq!(
            (comparison.verdict, comparison.interval),
            (Verdict::TooFewSamples, None)
        );
        assert!(compare(samples(&[], &[]), samples(&[1], &[4.0])).is_none());
        assert!(compare(samples(&[1], &[0.0]), samples(&[1], &[4.0])).is_none());
    }
}
