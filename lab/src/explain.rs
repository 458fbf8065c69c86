//! Where the time went, and whether a convoy took it.

use std::collections::BTreeMap;

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
    /// Of a cell; `None` without runs, and for those of a real host: that none was recorded does not mean that there was none.
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

/// What a real host tells of its guests' time: the accounts of the threads that its vCPUs are, from their start to their end.
/// Who held or wanted a lock meanwhile it cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostTold {
    /// Time that the vCPUs' threads ran, in seconds: in the guest, in exits, polling before they slept.
    pub ran_s: f64,
    /// Time that they were ready and had no CPU, in seconds.
    pub ready_s: f64,
    /// Time that they slept in halts, in seconds; null if KVM does not tell.
    pub halted_s: Option<f64>,
    /// Share of the time in which they wanted a CPU that went by without one.
    pub without_cpu: f64,
}

impl HostTold {
    fn of(counters: &BTreeMap<String, f64>) -> Option<HostTold> {
        let seconds = |name: &str| counters.get(name).map(|ns| ns / 1e9);
        let (ran_s, ready_s) = (seconds("cpu_time_ns")?, seconds("runnable_ns")?);
        if ran_s <= 0.0 {
            // The kernel keeps no account of threads.
            return None;
        }
        Some(HostTold {
            ran_s,
            ready_s,
            halted_s: seconds("kvm.vcpu.halt_wait_ns"),
            without_cpu: ready_s / (ran_s + ready_s),
        })
    }
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
    /// Share of the vCPUs' time by cause, largest first; the shares sum to 1. Empty on a real host.
    pub lost_time: Vec<(String, f64)>,
    /// Counters: mean of the runs.
    pub counters: Vec<(String, f64)>,
    /// Convoys; null for a guest that is not measured, and on a real host.
    pub convoys: Option<Convoys>,
    /// What the host told, where it was a real one; null in the simulator, which knows all of it.
    pub host_told: Option<HostTold>,
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
            host_told: HostTold::of(counters).filter(|_| lost_time.is_empty()),
            lost_time,
            counters: counters.iter().map(|(name, value)| (name.clone(), *value)).collect(),
            convoys: None,
        }
    }
}

/// Counters of a real host that say what became of its guests' time: KVM's own, and those of the guest.
pub const TELLING_OF_HOST: [&str; 15] = [
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
    /// Whether a real host gave the results: then there are no lost time and no convoys, since none can be known.
    pub of_real_host: bool,
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
                convoys: Convoys::of(case),
                ..Row::new(names, &case.lost_time, &case.counters)
            });
        }
        let beside = results.background.iter();
        for beside in beside.filter(|beside| (&beside.case, &beside.variant) == cell) {
            let names = [&beside.case, &beside.variant, &beside.vm];
            rows.push(Row::new(names, &beside.lost_time, &beside.counters));
        }
    }
    Explanation {
        schema: SCHEMA,
        experiment: results.experiment.clone(),
        of_real_host: results.are_of_real_host(),
        rows,
    }
}
