//! Where the time went, and whether a convoy took it.

use serde::Serialize;

use crate::results::{Case, Results};
use crate::stats::Summary;

/// Whether convoys took the time, run by run.
///
/// Behind a preempted lock holder, or behind a preempted waiter whose turn it is, everyone else in line burns CPU time for
/// nothing. Where that feeds on itself (the next in line is preempted before its turn comes) the guest spins longer than it
/// works: that is a convoy. It comes and goes, so the runs of one cell can differ by an order of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convoys {
    /// Runs.
    pub runs: usize,
    /// Runs that fell into a convoy at some time.
    pub convoys: usize,
    /// Share of the run spent in convoys: least, median and most of the runs.
    pub shares: [f64; 3],
    /// Time spun behind vCPUs that were not running, for each unit of time worked: least, median and most of the runs.
    pub spun_per_work: [f64; 3],
    /// Longest stall: no vCPU of the guest did useful work, or ran while holding a lock. Least, median and most of the runs,
    /// nanoseconds of virtual time.
    pub stalls_ns: [u64; 3],
    /// The host scheduler's period in nanoseconds, within which a preempted vCPU gets its turn again.
    pub period_ns: u64,
}

impl Convoys {
    /// Of a cell; `None` without runs.
    pub fn of(case: &Case) -> Option<Convoys> {
        let shares = case
            .convoys
            .iter()
            .map(|convoy| convoy.map_or(0.0, |convoy| convoy.share));
        let pairs = case.preempted_spin_shares.iter().zip(&case.work_shares);
        let mut stalls = case.longest_stalls_ns.clone();
        stalls.sort_unstable();
        Some(Convoys {
            runs: case.convoys.len(),
            convoys: case.convoys.iter().flatten().count(),
            shares: spread(shares)?,
            spun_per_work: spread(pairs.map(|(spun, worked)| spun / worked.max(f64::MIN_POSITIVE)))?,
            stalls_ns: [*stalls.first()?, *stalls.get(stalls.len() / 2)?, *stalls.last()?],
            period_ns: case.period_ns,
        })
    }

    /// What the runs say, in words.
    pub fn verdict(&self) -> &'static str {
        match self.convoys {
            0 if self.spun_per_work[2] < 0.1 => "no convoy",
            0 => "no convoy, but time is lost behind preempted vCPUs",
            convoys if convoys < self.runs => "convoys in some runs",
            _ if self.shares[0] > 0.5 => "convoys, most of the time, in every run",
            _ => "convoys in every run",
        }
    }
}

/// Least, median and most; `None` without values.
fn spread(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let summary = Summary::of(&values.collect::<Vec<f64>>())?;
    Some([summary.min, summary.median, summary.max])
}

/// A cell explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Case.
    pub case: String,
    /// Variant.
    pub variant: String,
    /// Guest.
    pub vm: String,
    /// Whether the guest is measured.
    pub measured: bool,
    /// Share of the vCPUs' time by cause, largest first; the shares sum to 1.
    pub lost_time: Vec<(String, f64)>,
    /// Counters: mean of the runs.
    pub counters: Vec<(String, f64)>,
    /// Convoys; null for a guest that is not measured.
    pub convoys: Option<Convoys>,
}

/// Counters that say whether a holder or a waiter lost its pCPU, and what was done about it.
pub const TELLING: [&str; 14] = [
    "preempted_holding_lock",
    "preempted_waiting_for_lock",
    "halt_exits",
    "pause_exits",
    "pause_window_max",
    "kicks_sent",
    "kicks_received",
    "directed_yield_attempted",
    "directed_yield_successful",
    "directed_yield_to_holder",
    "directed_yield_to_next_waiter",
    "directed_yield_to_ipi_target",
    "directed_yield_to_other_holder",
    "directed_yield_holder_refused",
];

/// The names of all counters of `rows`, in their order, each once.
pub fn counter_names<'r>(rows: &[&'r Row]) -> Vec<&'r str> {
    let mut names: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.counters)
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// An experiment explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `holdfast.explanation/1`.
    pub schema: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// Cells in the order of the results; guests that are not measured after those that are.
    pub rows: Vec<Row>,
}

/// Schema of an explanation.
pub const SCHEMA: &str = "holdfast.explanation/1";

/// Explains `results`.
pub fn explain(results: &Results) -> Explanation {
    let mut rows = Vec::new();
    let cells = results.cases.iter().map(|case| (&case.case, &case.variant));
    let mut seen: Vec<(&String, &String)> = Vec::new();
    for (name, variant) in cells {
        if seen.contains(&(name, variant)) {
            continue;
        }
        seen.push((name, variant));
        for case in results
            .cases
            .iter()
            .filter(|case| (&case.case, &case.variant) == (name, variant))
        {
            rows.push(Row {
                case: case.case.clone(),
                variant: case.variant.clone(),
                vm: case.vm.clone(),
                measured: true,
                lost_time: sorted(case.lost_time.iter()),
                counters: case
                    .counters
                    .iter()
                    .map(|(name, value)| (name.clone(), *value))
                    .collect(),
                convoys: Convoys::of(case),
            });
        }
        for beside in results
            .background
            .iter()
            .filter(|beside| (&beside.case, &beside.variant) == (name, variant))
        {
            rows.push(Row {
                case: beside.case.clone(),
                variant: beside.variant.clone(),
                vm: beside.vm.clone(),
                measured: false,
                lost_time: sorted(beside.lost_time.iter()),
                counters: beside
                    .counters
                    .iter()
                    .map(|(name, value)| (name.clone(), *value))
                    .collect(),
                convoys: None,
            });
        }
    }
    Explanation {
        schema: SCHEMA,
        experiment: results.experiment.clone(),
        rows,
    }
}

/// Largest share first; equal ones by name.
fn sorted<'s>(shares: impl Iterator<Item = (&'s String, &'s f64)>) -> Vec<(String, f64)> {
    let mut shares: Vec<(String, f64)> = shares.map(|(cause, share)| (cause.clone(), *share)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    shares
}
