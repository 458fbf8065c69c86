//! Results that prove little: runs that were too short, and too few of them.

use std::cmp::Reverse;

use crate::results::{Case, Results};
use crate::service::OPERATIONS_MIN;

/// Fewest scheduling periods in a run. In fewer, a vCPU gets so few turns that the first of them decides the result.
const PERIODS_MIN: u64 = 10;
/// Number of samples from which on their spread speaks for itself.
const SAMPLES_ENOUGH: usize = 5;
/// Ratio of the largest to the smallest of few samples from which on their mean says little.
const SPREAD_MAX: f64 = 2.0;

/// Returns what speaks against relying on `results`, each with its worst cell.
pub fn doubts(results: &Results) -> Vec<String> {
    [short_runs(results), few_operations(results), few_seeds(results)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the shortest run of `case` in nanoseconds of virtual time, if it was too short.
fn too_short(case: &Case) -> Option<u64> {
    let shortest = *case.lengths_ns.iter().min()?;
    (shortest < case.period_ns.saturating_mul(PERIODS_MIN)).then_some(shortest)
}

/// Returns how many times the smallest sample of `case` the largest is, if the samples are few and differ much.
fn spread(case: &Case) -> Option<f64> {
    let ratio = case.max? / case.min.filter(|min| *min > 0.0)?;
    let is_few = (2..SAMPLES_ENOUGH).contains(&case.samples.len());
    (is_few && ratio >= SPREAD_MAX).then_some(ratio)
}

fn short_runs(results: &Results) -> Option<String> {
    let short: Vec<(&Case, u64)> = results
        .cases
        .iter()
        .filter_map(|case| Some((case, too_short(case)?)))
        .collect();
    let (case, length) = short.iter().min_by_key(|(_, length)| *length)?;
    let milliseconds = |ns: u64| format!("{:.0} ms", ns as f64 / 1e6);
    Some(format!(
        "runs of {} of {} cells are shorter than {PERIODS_MIN} periods of the host's scheduler: {} lasted {}, \
         a period is {}. Use a larger --scale",
        short.len(),
        results.cases.len(),
        name(case),
        milliseconds(*length),
        milliseconds(case.period_ns),
    ))
}

/// Says which guests completed so few operations that their slowest hundredth is chance.
fn few_operations(results: &Results) -> Option<String> {
    let fewest = |case: &Case| -> Option<u64> {
        let fewest = *case.service.as_ref()?.operations.iter().min()?;
        (fewest < OPERATIONS_MIN).then_some(fewest)
    };
    let few: Vec<(&Case, u64)> = results
        .cases
        .iter()
        .filter_map(|case| Some((case, fewest(case)?)))
        .collect();
    let (case, count) = few.iter().min_by_key(|(_, count)| *count)?;
    let served = results.cases.iter().filter(|case| case.service.is_some()).count();
    Some(format!(
        "{} of {served} cells have fewer than {OPERATIONS_MIN} operations, too few for a 99th percentile: {} had \
         {count}. Use a larger --scale, or more work for that guest (vm.*.work)",
        few.len(),
        name(case),
    ))
}

fn few_seeds(results: &Results) -> Option<String> {
    let differing: Vec<(&Case, f64)> = results
        .cases
        .iter()
        .filter_map(|case| Some((case, spread(case)?)))
        .collect();
    // The first of equal ones.
    let order = |(index, (_, ratio)): &(usize, &(&Case, f64))| (ratio.to_bits(), Reverse(*index));
    let (_, (case, ratio)) = differing.iter().enumerate().max_by_key(order)?;
    Some(format!(
        "samples of {} of {} cells differ twofold or more: {} samples of {} by {ratio:.1} times. Use more --seeds, \
         or a larger --scale",
        differing.len(),
        results.cases.len(),
        case.samples.len(),
        name(case),
    ))
}

fn name(case: &Case) -> String {
    format!("{} / {} / {}", case.case, case.variant, case.vm)
}
