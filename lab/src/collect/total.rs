//! Totals over identical guests.

use std::ops::Range;

use holdfast_sim::Outcome;

use super::sample;
use crate::experiment::Metric;
use crate::keys::Family;
use crate::plan::{Cell, Plan};
use crate::results::Total;
use crate::stats::Summary;

/// Returns the totals of the measured families of `cell`, of the runs that are `done`.
pub(super) fn totals<'p>(
    plan: &'p Plan,
    cell: &'p Cell,
    done: &'p [(u64, &Outcome)],
) -> impl Iterator<Item = Total> + 'p {
    let families = plan.experiment.names.families.iter();
    families.filter_map(|family| {
        let guests = members(cell, family);
        let measured = cell.config.vms.get(guests.start).is_some_and(|vm| vm.measured);
        measured.then(|| total(plan, cell, family, guests, done))
    })
}

/// Returns the numbers of the guests of `family` in `cell`, which can have fewer than others.
fn members(cell: &Cell, family: &Family) -> Range<usize> {
    let vms = &cell.config.vms;
    let is_one = |name: &str, number: usize| *name == format!("{}-{number}", family.name);
    let first = vms.iter().position(|vm| is_one(&vm.name, 1)).unwrap_or(vms.len());
    let count = (1..=family.count)
        .zip(&vms[first..])
        .take_while(|(number, vm)| is_one(&vm.name, *number));
    first..first + count.count()
}

fn total(plan: &Plan, cell: &Cell, family: &Family, guests: Range<usize>, done: &[(u64, &Outcome)]) -> Total {
    let count = guests.len();
    let workload = &cell.config.vms[guests.start].boot.workload;
    let each = |outcome: &Outcome| -> Vec<f64> {
        let vms = outcome.vms[guests.clone()].iter();
        vms.filter_map(|vm| sample(plan, workload, vm)).collect()
    };
    let runs: Vec<Vec<f64>> = done.iter().map(|(_, outcome)| each(outcome)).collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let smallest = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let samples: Vec<f64> = match plan.experiment.metric.of(workload) {
        Metric::Throughput => runs.iter().map(|values| values.iter().sum()).collect(),
        Metric::Elapsed | Metric::Own => runs.iter().map(|values| largest(values)).collect(),
    };
    let summary = Summary::of(&samples);
    Total {
        case: cell.case.clone(),
        variant: cell.variant.clone(),
        vm: family.name.clone(),
        guests: count,
        unit: plan.experiment.unit_of(workload).to_owned(),
        mean: summary.map(|summary| summary.mean),
        sd: summary.and_then(|summary| summary.sd),
        evenness: runs.iter().map(|values| smallest(values) / largest(values)).collect(),
        samples,
    }
}
