//! Explains where the time went, and whether a convoy took it.

mod blocked;
mod halts;
mod locks;
mod seeds;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::operators::Operators;
use crate::remarks::remarks;
use crate::results::{Case, Results};
use crate::service::Service;
use crate::stats::Summary;

pub use blocked::{BlockedRow, blocked_lines};
pub use halts::Halts;
pub use locks::LockRow;
pub use seeds::{SeedRow, worth_a_trace};

/// Convoys in the runs of one cell.
///
/// Behind a preempted lock holder, or behind a preempted waiter whose turn it is, all other waiters spin in vain. If
/// that feeds on itself (the next waiter is preempted before its turn comes), the guest spins longer than it works:
/// this is a convoy. Convoys come and go, so the runs of one cell can differ by an order of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convoys {
    /// Number of runs.
    pub runs: usize,
    /// Number of runs with at least one convoy.
    pub convoys: usize,
    /// Share of the run spent in convoys: minimum, median and maximum over the runs.
    pub shares: [f64; 3],
    /// Time spun behind vCPUs that were not running, per unit of time worked: minimum, median and maximum over the
    /// runs.
    pub spun_per_work: [f64; 3],
    /// Longest stall, a time in which no vCPU of the guest worked or ran with a lock: minimum, median and maximum over
    /// the runs, in nanoseconds of virtual time.
    pub stalls_ns: [u64; 3],
    /// Period of the host's scheduler in nanoseconds. A preempted vCPU gets its turn again within it.
    pub period_ns: u64,
}

impl Convoys {
    /// Returns the convoys of a cell, or `None` if it has no runs or comes from a real host, which cannot see convoys.
    pub fn of(case: &Case) -> Option<Convoys> {
        if case.is_of_real_host() {
            return None;
        }
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

    /// Returns whether no run had a convoy, or lost time behind preempted vCPUs.
    pub fn is_none(&self) -> bool {
        self.convoys == 0 && self.spun_per_work[2] < 0.1
    }

    /// Returns the verdict in words.
    pub fn verdict(&self) -> &'static str {
        match self.convoys {
            0 if self.is_none() => "no convoy",
            0 => "no convoy, but time is lost behind preempted vCPUs",
            convoys if convoys < self.runs => "convoys in some runs",
            _ if self.shares[0] > 0.5 => "convoys, most of the time, in every run",
            _ => "convoys in every run",
        }
    }
}

/// Returns minimum, median and maximum, or `None` without values.
fn spread(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let summary = Summary::of(&values.collect::<Vec<f64>>())?;
    Some([summary.min, summary.median, summary.max])
}

/// Figures of a real host about its guests' time: the accounts of the vCPUs' threads, from their start to their end.
/// The host does not know which vCPU held or wanted a lock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostFigures {
    /// Time that the vCPUs' threads ran, in seconds: in the guest, in exits, and polling before they slept.
    pub ran_s: f64,
    /// Time that the threads were ready without a CPU, in seconds.
    pub ready_s: f64,
    /// Time that the threads slept in halts, in seconds; null if KVM does not report it.
    pub halted_s: Option<f64>,
    /// Share of the time in which the threads wanted a CPU and had none.
    pub without_cpu: f64,
}

impl HostFigures {
    fn of(counters: &BTreeMap<String, f64>) -> Option<HostFigures> {
        let seconds = |name: &str| counters.get(name).map(|ns| ns / 1e9);
        let (ran_s, ready_s) = (seconds("cpu_time_ns")?, seconds("runnable_ns")?);
        if ran_s <= 0.0 {
            // The kernel does not account for the threads' time.
            return None;
        }
        Some(HostFigures {
            ran_s,
            ready_s,
            halted_s: seconds("kvm.vcpu.halt_wait_ns"),
            without_cpu: ready_s / (ran_s + ready_s),
        })
    }
}

/// The explanation of one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// Whether the guest is measured.
    pub measured: bool,
    /// Share of the vCPUs' time by cause, largest first; the shares sum to 1. Empty on a real host.
    pub lost_time: Vec<(String, f64)>,
    /// What operators measure of the guest; null on a real host.
    pub operators: Option<Operators>,
    /// What the guest's users measure; null if they ask how long it takes, for a guest that is not measured, and on a
    /// real host.
    pub service: Option<Service>,
    /// Counters, as means over the runs.
    pub counters: Vec<(String, f64)>,
    /// The guest kernel's spinlocks, the most waited for first.
    pub locks: Vec<LockRow>,
    /// For how long waiters for spinlocks were halted, the shortest times first.
    pub blocked: Vec<BlockedRow>,
    /// Convoys; null for a guest that is not measured, and on a real host.
    pub convoys: Option<Convoys>,
    /// Time halted for locks; null for a guest that is not measured, and on a real host.
    pub halts: Option<Halts>,
    /// The runs, one for each seed; empty for a guest that is not measured, and on a real host.
    pub seeds: Vec<SeedRow>,
    /// Figures of a real host; null in the simulator.
    pub host_figures: Option<HostFigures>,
}

impl Row {
    fn new(names: [&String; 3], lost_time: &BTreeMap<String, f64>, counters: &BTreeMap<String, f64>) -> Row {
        let [case, variant, vm] = names.map(String::clone);
        let mut lost_time: Vec<(String, f64)> =
            lost_time.iter().map(|(cause, share)| (cause.clone(), *share)).collect();
        lost_time.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Row {
            case,
            variant,
            vm,
            measured: false,
            host_figures: HostFigures::of(counters).filter(|_| lost_time.is_empty()),
            lost_time,
            counters: counters.iter().map(|(name, value)| (name.clone(), *value)).collect(),
            locks: locks::of(counters),
            blocked: blocked::of(counters),
            operators: None,
            service: None,
            convoys: None,
            halts: None,
            seeds: Vec::new(),
        }
    }
}

/// Counters of a real host that explain its guests' time: KVM's own and those of the guest.
pub const KEY_HOST_COUNTERS: [&str; 15] = [
    "guest.kicks",
    "kvm.vcpu.directed_yield_attempted",
    "kvm.vcpu.directed_yield_successful",
    "kvm.vcpu.exits",
    "kvm.vcpu.halt_exits",
    "kvm.vcpu.halt_poll_fail_ns",
    "kvm.vcpu.halt_poll_success_ns",
    "kvm.vcpu.halt_wakeup",
    "kvm.vcpu.hypercalls",
    "kvm.vcpu.irq_injections",
    "kvm.vcpu.preemption_other",
    "kvm.vcpu.preemption_reported",
    "kvm.vcpu.signal_exits",
    "lock.acquired",
    "lock.contended",
];

/// Counters that show how often a holder or waiter lost its pCPU, and how guest and host reacted.
pub const KEY_COUNTERS: [&str; 14] = [
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

/// Returns the names of all counters of `rows`, sorted, without duplicates.
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

/// The explanation of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The schema, `holdfast.explanation/1`.
    pub schema: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// Whether the results come from a real host, which knows neither lost time nor convoys.
    pub of_real_host: bool,
    /// What took time or had no effect, in words.
    pub remarks: Vec<String>,
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
    for cell in cells {
        if seen.contains(&cell) {
            continue;
        }
        seen.push(cell);
        for case in results.cases.iter().filter(|case| (&case.case, &case.variant) == cell) {
            let names = [&case.case, &case.variant, &case.vm];
            rows.push(Row {
                measured: true,
                operators: case.operators.clone(),
                service: case.service.clone(),
                convoys: Convoys::of(case),
                halts: Halts::of(&case.lost_time),
                seeds: seeds::of(case),
                ..Row::new(names, &case.lost_time, &case.counters)
            });
        }
        let beside = results.background.iter();
        for beside in beside.filter(|beside| (&beside.case, &beside.variant) == cell) {
            let names = [&beside.case, &beside.variant, &beside.vm];
            rows.push(Row {
                operators: beside.operators.clone(),
                ..Row::new(names, &beside.lost_time, &beside.counters)
            });
        }
    }
    Explanation {
        schema: SCHEMA,
        experiment: results.experiment.clone(),
        of_real_host: results.are_of_real_host(),
        remarks: remarks(results),
        rows,
    }
}
