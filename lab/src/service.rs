//! What the users of a guest measure: operations per second, and how long an operation takes.
//!
//! - **Whole operations.** A transaction lasts from a client's request until it has its answer, a message from its
//!   producer to its consumer. Waits for pCPUs and locks are in it.
//! - **Free of charge.** Recording takes no virtual time, so that it changes no history.

use std::collections::BTreeMap;

use holdfast_sim::VmOutcome;
use holdfast_workloads::Workload;
use serde::{Deserialize, Serialize};

use crate::experiment::rate_seconds;
use crate::results::{Case, Results, Total};
use crate::stats::Summary;

/// Fewest operations of which the slowest hundredth says something.
pub const OPERATIONS_MIN: u64 = 100;

/// What the users of a guest measure in each run. Guests whose users ask how long they take have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Unit of the rates.
    pub unit: String,
    /// Operations per time, for each sample.
    pub rates: Vec<f64>,
    /// Number of operations whose time was recorded, for each sample.
    pub operations: Vec<u64>,
    /// Median time of an operation in ms, for each sample.
    pub p50_ms: Vec<f64>,
    /// 99th percentile of the times, in ms.
    pub p99_ms: Vec<f64>,
    /// Longest time, in ms.
    pub longest_ms: Vec<f64>,
}

/// Names of the figures of [`Service::figures`] after the rate.
const TIMES: [&str; 3] = ["p50, ms", "p99, ms", "longest, ms"];

impl Service {
    /// Returns what the users of a guest with `workload` measure in the runs `vms`, in `unit` or else in the workload's
    /// own. `None` if they ask how long it takes, if there are no runs, and for a real host.
    pub(crate) fn of<'o>(
        workload: &Workload,
        unit: Option<&str>,
        vms: impl Iterator<Item = &'o VmOutcome> + Clone,
    ) -> Option<Service> {
        let unit = unit
            .or(workload.throughput_unit())
            .filter(|_| workload.counts_operations())?;
        let count = |vm: &&VmOutcome| vm.counters.get("operation_count").copied().unwrap_or(0);
        if vms.clone().next().is_none() || vms.clone().any(|vm| count(&vm) == 0) {
            return None;
        }
        let rate = |vm: &VmOutcome| {
            let seconds = vm.elapsed_ns.unwrap_or(0).max(1) as f64 / 1e9;
            vm.operations.unwrap_or(0) as f64 / seconds * rate_seconds(unit).unwrap_or(1.0)
        };
        let times = |name: &str| -> Vec<f64> {
            let ns = vms.clone().map(|vm| vm.counters.get(name).copied().unwrap_or(0));
            ns.map(|ns| ns.max(1) as f64 / 1e6).collect()
        };
        Some(Service {
            unit: unit.to_owned(),
            rates: vms.clone().map(rate).collect(),
            operations: vms.clone().map(|vm| count(&vm)).collect(),
            p50_ms: times("operation_p50_ns"),
            p99_ms: times("operation_p99_ns"),
            longest_ms: times("operation_max_ns"),
        })
    }

    /// Returns names and values: means over the runs, and the longest time of all runs.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let mean = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.mean);
        let longest = self.longest_ms.iter().copied().fold(0.0, f64::max);
        let times = [mean(&self.p50_ms), mean(&self.p99_ms), longest];
        let times = TIMES.map(str::to_owned).into_iter().zip(times);
        std::iter::once((self.unit.clone(), mean(&self.rates)))
            .chain(times)
            .collect()
    }

    /// Returns the figure called `name`, if there is one.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let mut figures = self.figures().into_iter();
        figures.find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the lengths of its lists, which are the number of samples.
    pub(crate) fn lengths(&self) -> [usize; 5] {
        let times = [&self.rates, &self.p50_ms, &self.p99_ms, &self.longest_ms].map(Vec::len);
        [times[0], times[1], times[2], times[3], self.operations.len()]
    }
}

/// Returns the names of the figures that `guests` have, rates first, each once.
pub fn names<'s>(guests: impl Iterator<Item = &'s Service> + Clone) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for guest in guests {
        if !names.contains(&guest.unit) {
            names.push(guest.unit.clone());
        }
    }
    if !names.is_empty() {
        names.extend(TIMES.map(str::to_owned));
    }
    names
}

/// A time of operations that guests can be compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
}

impl Latency {
    /// Returns its name as a metric.
    pub fn name(self) -> &'static str {
        match self {
            Latency::P50 => "p50 latency",
            Latency::P99 => "p99 latency",
        }
    }

    fn of(self, service: &Service) -> &[f64] {
        match self {
            Latency::P50 => &service.p50_ms,
            Latency::P99 => &service.p99_ms,
        }
    }
}

/// Returns `results` with a latency as the metric, in ms. Guests without operations are left out. For identical guests
/// the slowest of each run counts.
pub fn by_latency(results: &Results, latency: Latency) -> Results {
    let mut by_latency = results.clone();
    by_latency.cases.retain(|case| case.service.is_some());
    for case in &mut by_latency.cases {
        let Some(service) = &case.service else { continue };
        let samples = latency.of(service).to_vec();
        let summary = Summary::of(&samples);
        *case = Case {
            metric: latency.name().to_owned(),
            unit: "ms".to_owned(),
            better: "lower".to_owned(),
            mean: summary.map(|summary| summary.mean),
            sd: summary.and_then(|summary| summary.sd),
            median: summary.map(|summary| summary.median),
            min: summary.map(|summary| summary.min),
            max: summary.map(|summary| summary.max),
            published: None,
            also_published: Vec::new(),
            samples,
            ..case.clone()
        };
    }
    let mut slowest: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
    for case in &by_latency.cases {
        let Some((family, _)) = case.vm.rsplit_once('-') else {
            continue;
        };
        let of = (case.case.clone(), case.variant.clone(), family.to_owned());
        let known = slowest.entry(of).or_insert_with(|| vec![0.0; case.samples.len()]);
        for (most, sample) in known.iter_mut().zip(&case.samples) {
            *most = most.max(*sample);
        }
    }
    by_latency.totals.retain_mut(|total: &mut Total| {
        let of = (total.case.clone(), total.variant.clone(), total.vm.clone());
        let Some(samples) = slowest.remove(&of) else {
            return false;
        };
        total.unit = "ms".to_owned();
        total.mean = Summary::of(&samples).map(|summary| summary.mean);
        total.samples = samples;
        true
    });
    by_latency
}
