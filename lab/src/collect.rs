//! Makes results of the outcomes of runs.

mod total;

use std::collections::BTreeMap;

use holdfast_host::HostConfig;
use holdfast_machine::Topology;
use holdfast_sim::{Outcome, VmOutcome};
use holdfast_workloads::Workload;

use crate::amount::show_nanos;
use crate::experiment::{Metric, Published, Quantity, rate_seconds};
use crate::operators::Operators;
use crate::plan::{Cell, Plan};
use crate::rerun;
use crate::results::{
    Background, Case, ConvoyTimes, FailedRun, OtherFigure, PublishedFigure, Results, SCHEMA, history_hash,
};
use crate::run::Outcomes;
use crate::service::Service;
use crate::stats::Summary;

/// Returns the results of `plan` with these `outcomes`. `target`: the experiment as the user named it, a name or a
/// file.
pub fn results(plan: &Plan, outcomes: &Outcomes, target: &str, version: &str) -> Results {
    let mut cases = Vec::new();
    let mut totals = Vec::new();
    let mut background = Vec::new();
    let mut failures = Vec::new();
    for (index, cell) in plan.cells.iter().enumerate() {
        let mut done: Vec<(u64, &Outcome)> = Vec::new();
        for (position, seed) in plan.seeds.iter().enumerate() {
            let error = match outcomes.get(index, position) {
                None => continue,
                Some(Ok(outcome)) => match unmeasured(plan, cell, outcome) {
                    None => {
                        done.push((*seed, outcome));
                        continue;
                    }
                    Some(error) => error,
                },
                Some(Err(error)) => error.to_string(),
            };
            failures.push(FailedRun {
                case: cell.case.clone(),
                variant: cell.variant.clone(),
                seed: *seed,
                error,
                replay: rerun::one(plan, target, cell, *seed),
            });
        }
        totals.extend(total::totals(plan, cell, &done));
        for (vm, config) in cell.config.vms.iter().enumerate() {
            if config.measured {
                cases.push(case(plan, cell, vm, &done));
            } else {
                background.push(beside(cell, vm, &done));
            }
        }
    }
    let mut machines: Vec<&str> = plan
        .cells
        .iter()
        .map(|cell| cell.config.machine.name.as_str())
        .collect();
    machines.dedup();
    Results {
        schema: SCHEMA.to_owned(),
        experiment: plan.experiment.name.clone(),
        title: Some(plan.experiment.title.clone()),
        definition: Some(plan.experiment.text.clone()),
        machine: machines.join(", "),
        seeds: plan.seeds.clone(),
        scale: plan.scale,
        version: version.to_owned(),
        command: rerun::all(plan, target),
        complete: outcomes.complete(),
        cases,
        totals,
        background,
        failures,
    }
}

/// Returns the metric's value of a guest with `workload`, in its unit.
pub(crate) fn sample(plan: &Plan, workload: &Workload, vm: &VmOutcome) -> Option<f64> {
    let seconds = vm.elapsed_ns.filter(|elapsed| *elapsed > 0)? as f64 / 1e9;
    match plan.experiment.metric.of(workload) {
        Metric::Throughput => vm
            .operations
            .filter(|count| *count > 0)
            .map(|count| count as f64 / seconds * rate_seconds(plan.experiment.unit_of(workload)).unwrap_or(1.0)),
        Metric::Elapsed | Metric::Own => Some(seconds / plan.scale),
    }
}

/// Returns what a run that succeeded lacks: a moment to count from before its end, or the value of a measured guest.
fn unmeasured(plan: &Plan, cell: &Cell, outcome: &Outcome) -> Option<String> {
    if let Some(at) = cell.config.zero_at_ns.filter(|at| *at >= outcome.end_ns) {
        let (at, end) = (show_nanos(at), show_nanos(outcome.end_ns));
        return Some(format!(
            "zero_at: found {at}, expected a moment before {end}, where the run ends"
        ));
    }
    let mut measured = cell
        .config
        .vms
        .iter()
        .zip(&outcome.vms)
        .filter(|(config, _)| config.measured);
    let (config, vm) = measured.find(|(config, vm)| sample(plan, &config.boot.workload, vm).is_none())?;
    let (elapsed, operations) = (vm.elapsed_ns, vm.operations);
    let metric = plan.experiment.metric.of(&config.boot.workload).name();
    Some(format!(
        "guest {}: no {metric}: found {elapsed:?} ns and {operations:?} operations",
        config.name
    ))
}

fn case(plan: &Plan, cell: &Cell, vm: usize, done: &[(u64, &Outcome)]) -> Case {
    let name = cell.config.vms[vm].name.as_str();
    let workload = &cell.config.vms[vm].boot.workload;
    let metric = plan.experiment.metric.of(workload);
    let unit = plan.experiment.unit_of(workload).to_owned();
    let samples: Vec<f64> = done
        .iter()
        .filter_map(|(_, outcome)| sample(plan, workload, &outcome.vms[vm]))
        .collect();
    let summary = Summary::of(&samples);
    let (published, others): (Vec<_>, Vec<_>) = plan
        .published(&cell.case, &cell.variant, name)
        .partition(|row| row.of == Quantity::Metric);
    let vms = || done.iter().map(|(_, outcome)| &outcome.vms[vm]);
    // A real host does not know where the time went and has no history. Zeros would look like measurements.
    let simulated = || {
        done.iter()
            .filter(|(_, outcome)| !outcome.vms[vm].lost_time_ps.is_empty())
    };
    let simulated_vms = || simulated().map(|(_, outcome)| &outcome.vms[vm]);
    Case {
        case: cell.case.clone(),
        variant: cell.variant.clone(),
        vm: name.to_owned(),
        metric: metric.name().to_owned(),
        better: plan.experiment.better_of(workload).name().to_owned(),
        seeds: done.iter().map(|(seed, _)| *seed).collect(),
        samples,
        lengths_ns: done
            .iter()
            .filter_map(|(_, outcome)| sample(plan, workload, &outcome.vms[vm]).and(outcome.vms[vm].elapsed_ns))
            .collect(),
        mean: summary.map(|summary| summary.mean),
        sd: summary.and_then(|summary| summary.sd),
        median: summary.map(|summary| summary.median),
        min: summary.map(|summary| summary.min),
        max: summary.map(|summary| summary.max),
        published: published.first().map(|row| figure(row)),
        also_published: others
            .into_iter()
            .map(|row| OtherFigure {
                of: row.of,
                published: figure(row),
                samples: vms().filter_map(|vm| percent_of(row.of, vm)).collect(),
            })
            .collect(),
        work_shares: simulated_vms().map(|vm| share(vm, &WORK)).collect(),
        preempted_spin_shares: simulated_vms().map(|vm| share(vm, &PREEMPTED_SPIN)).collect(),
        convoys: simulated_vms()
            .map(|outcome| convoy(outcome, cell.config.vms[vm].vcpus))
            .collect(),
        longest_stalls_ns: simulated_vms().map(|vm| vm.longest_stall_ns).collect(),
        period_ns: period_ns(&cell.config.host, cell.config.machine.topology),
        operators: operators(cell, vm, vms()),
        service: Service::of(workload, (metric == Metric::Throughput).then_some(&*unit), vms()),
        counters: counters(vms()),
        lost_time: lost_time(vms()),
        history_hash: if simulated().count() == done.len() {
            history_hash(done.iter().map(|(seed, outcome)| (*seed, outcome.history_hash)))
        } else {
            String::new()
        },
        history_hashes: simulated()
            .map(|(_, outcome)| format!("{:016x}", outcome.history_hash))
            .collect(),
        swept: cell.swept.clone(),
        unit,
    }
}

fn figure(row: &Published) -> PublishedFigure {
    PublishedFigure {
        mean: row.mean,
        sd: row.sd,
        runs: row.runs,
        source: row.source.clone(),
        calibrate: row.calibrate.is_some(),
        fitted: row.calibrate.clone(),
    }
}

/// Returns the quantity of a run in percent, or `None` for the metric and for what a real host does not know.
fn percent_of(quantity: Quantity, vm: &VmOutcome) -> Option<f64> {
    match quantity {
        Quantity::Metric => None,
        Quantity::TakingLocks => {
            let spinning = share(vm, &RUNNING_SPIN) + share(vm, &PREEMPTED_SPIN);
            let at_once =
                *vm.counters.get("lock.at_once_ns").unwrap_or(&0) as f64 * 1e3 / vm.vcpu_time_ps.max(1) as f64;
            let on_pcpus = 1.0 - share(vm, &WITHOUT_PCPU);
            (!vm.lost_time_ps.is_empty() && on_pcpus > 0.0).then(|| 100.0 * (spinning + at_once) / on_pcpus)
        }
        Quantity::CpuTime => Some(*vm.counters.get("cpu_permille")? as f64 / 10.0),
    }
}

fn beside(cell: &Cell, vm: usize, done: &[(u64, &Outcome)]) -> Background {
    let vms = || done.iter().map(|(_, outcome)| &outcome.vms[vm]);
    Background {
        case: cell.case.clone(),
        variant: cell.variant.clone(),
        vm: cell.config.vms[vm].name.clone(),
        operators: operators(cell, vm, vms()),
        counters: counters(vms()),
        lost_time: lost_time(vms()),
    }
}

/// Returns what operators measure of guest `vm` of `cell` in the runs `vms`.
fn operators<'o>(cell: &Cell, vm: usize, vms: impl Iterator<Item = &'o VmOutcome> + Clone) -> Option<Operators> {
    let config = &cell.config.vms[vm];
    Operators::of(vms, config.vcpus, config.host.steal_time && !config.bare_metal)
}

/// Returns the mean of each counter over the runs. A counter that a run lacks counts as 0.
fn counters<'o>(vms: impl Iterator<Item = &'o VmOutcome> + Clone) -> BTreeMap<String, f64> {
    let runs = vms.clone().count() as f64;
    let mut sums: BTreeMap<String, u128> = BTreeMap::new();
    for (name, value) in vms.flat_map(|vm| &vm.counters) {
        *sums.entry(name.clone()).or_default() += u128::from(*value);
    }
    sums.into_iter().map(|(name, sum)| (name, sum as f64 / runs)).collect()
}

/// The simulator's causes that count as work.
const WORK: [&str; 2] = ["useful", "critical_section"];
/// The simulator's causes that count as spinning behind a vCPU that is not running.
const PREEMPTED_SPIN: [&str; 4] = [
    "spin_preempted_holder",
    "spin_preempted_waiter",
    "spin_throttled_holder",
    "spin_throttled_waiter",
];

/// The simulator's cause that counts as spinning behind a vCPU that runs.
const RUNNING_SPIN: [&str; 1] = ["spin_running_holder"];
/// The simulator's causes that pass without a pCPU.
const WITHOUT_PCPU: [&str; 8] = [
    "halted_for_lock",
    "idle",
    "migration_stop",
    "migration_throttle",
    "off",
    "runnable",
    "throttled",
    "wake_latency",
];

/// Returns the share of `causes` in a guest's vCPU time, or 0 if there is no time.
fn share(vm: &VmOutcome, causes: &[&str]) -> f64 {
    let picos: u128 = causes
        .iter()
        .filter_map(|cause| vm.lost_time_ps.get(cause))
        .map(|picos| u128::from(*picos))
        .sum();
    picos as f64 / vm.vcpu_time_ps.max(1) as f64
}

/// Returns the time from a guest's start to its end, in seconds.
fn own_seconds(vm: &VmOutcome, vcpus: u32) -> f64 {
    vm.vcpu_time_ps as f64 / f64::from(vcpus.max(1)) / 1e12
}

fn convoy(vm: &VmOutcome, vcpus: u32) -> Option<ConvoyTimes> {
    let convoy = vm.convoy?;
    Some(ConvoyTimes {
        since_ns: convoy.since_ns,
        share: convoy.total_ns as f64 / 1e9 / own_seconds(vm, vcpus).max(f64::MIN_POSITIVE),
    })
}

/// Returns the shares of causes in the vCPU time of all runs.
fn lost_time<'o>(vms: impl Iterator<Item = &'o VmOutcome>) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, u128> = BTreeMap::new();
    for (cause, picos) in vms.flat_map(|vm| &vm.lost_time_ps) {
        *sums.entry((*cause).to_owned()).or_default() += u128::from(*picos);
    }
    let whole: u128 = sums.values().sum();
    if whole == 0 {
        return BTreeMap::new();
    }
    sums.into_iter()
        .map(|(cause, sum)| (cause, sum as f64 / whole as f64))
        .collect()
}

/// Returns the host's scheduling period, with its scaling.
fn period_ns(host: &HostConfig, topology: Topology) -> u64 {
    host.sched.period_ns(topology.pcpus())
}
