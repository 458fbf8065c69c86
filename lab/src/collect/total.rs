//! Totals over identical guests.

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
    let measured = |family: &&Family| cell.config.vms[family.first].measured;
    families.filter(measured).map(|family| total(plan, cell, family, done))
}

fn total(plan: &Plan, cell: &Cell, family: &Family, done: &[(u64, &Outcome)]) -> Total {
    let guests = family.first..family.first + family.count;
    let each = |outcome: &Outcome| -> Vec<f64> {
        let vms = outcome.vms[guests.clone()].iter();
        vms.filter_map(|vm| sample(plan, vm)).collect()
    };
    let runs: Vec<Vec<f64>> = done.iter().map(|(_, outcome)| each(outcome)).collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let smallest = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let samples: Vec<f64> = match plan.experiment.metric {
        Metric::Elapsed => runs.iter().map(|values| largest(values)).collect(),
        Metric::Throughput => runs.iter().map(|values| values.iter().sum()).collect(),
    };
    let summary = Summary::of(&samples);
    Total {
        case: cell.case.clone(),
        variant: cell.variant.clone(),
        vm: family.name.clone(),
        guests: family.count,
        unit: plan.experiment.unit.clone(),
        mean: summary.map(|summary| summary.mean),
        sd: summary.and_then(|summary| summary.sd),
        evenness: runs.iter().map(|values| smallest(values) / largest(values)).collect(),
        samples,
    }
}
