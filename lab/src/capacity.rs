//! How many VMs of one kind fit on a host, within a budget.
//!
//! [`search`] asks for 1, 2, 4 and more copies until they do not fit, and then halves the step. More copies are taken
//! to fit no better than fewer.

use holdfast_sim::Outcome;
use serde::Serialize;

use crate::draws::Draws;
use crate::plan::Plan;
use crate::replay::idle_exits_ns;
use crate::run::Outcomes;

/// Schema of a capacity.
pub const SCHEMA: &str = "holdfast.capacity/1";

/// What a VM may lose by its neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Time ready without a pCPU, in percent of the time in which its vCPUs ran or were ready.
    ReadyPercent(f64),
    /// 99th percentile of the times of its operations, in ms.
    P99Ms(f64),
}

impl Budget {
    /// Returns what it limits: name and unit.
    pub fn name(self) -> &'static str {
        match self {
            Budget::ReadyPercent(_) => "ready of wanted, %",
            Budget::P99Ms(_) => "p99, ms",
        }
    }

    fn limit(self) -> f64 {
        match self {
            Budget::ReadyPercent(limit) | Budget::P99Ms(limit) => limit,
        }
    }
}

/// Some number of copies, and how they do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The number of copies.
    pub copies: usize,
    /// Their vCPUs for each pCPU.
    pub vcpus_per_pcpu: f64,
    /// Time ready in percent of the wanted time, of all copies together.
    pub ready_percent: Draws,
    /// 99th percentile of the times of operations in ms: mean of the copies. Null if their workload counts none.
    pub p99_ms: Option<Draws>,
}

impl Point {
    /// Returns the point of `copies` of `vm`, whose runs are `outcomes` of the only cell of `plan`. The host needs
    /// `idle_exit_ns` to leave idle, if it was recorded.
    ///
    /// # Errors
    /// Returns what a run failed with. `Ok(None)`: a run was called off.
    pub fn of(
        plan: &Plan,
        outcomes: &Outcomes,
        (vm, copies): (&str, usize),
        idle_exit_ns: Option<u64>,
    ) -> Result<Option<Point>, String> {
        let cell = &plan.cells[0].config;
        let is_copy = |name: &str| name.strip_prefix(vm).is_some_and(|rest| rest.starts_with('-'));
        let vcpus: u32 = cell.vms.iter().filter(|vm| is_copy(&vm.name)).map(|vm| vm.vcpus).sum();
        let (mut ready, mut p99) = (Vec::new(), Vec::new());
        for seed in 0..plan.seeds.len() {
            let outcome: &Outcome = match outcomes.get(0, seed) {
                None => return Ok(None),
                Some(Err(error)) => return Err(format!("{copies} copies, seed {}: {error}", plan.seeds[seed])),
                Some(Ok(outcome)) => outcome,
            };
            let own = || outcome.vms.iter().filter(|vm| is_copy(&vm.name));
            let counter = |name: &'static str| {
                own()
                    .filter_map(move |vm| vm.counters.get(name))
                    .map(|value| *value as f64)
            };
            let late: f64 = own().map(|vm| idle_exits_ns(vm, idle_exit_ns)).sum();
            let waited = counter("ready_ns").sum::<f64>() + late;
            ready.push(waited / (waited + counter("cpu_time_ns").sum::<f64>()).max(1.0) * 100.0);
            let times: Vec<f64> = counter("operation_p99_ns").map(|ns| ns / 1e6).collect();
            p99.extend((!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64));
        }
        let draws = |values: &[f64]| Draws::of(values);
        let ready_percent = draws(&ready).ok_or("no runs")?;
        Ok(Some(Point {
            copies,
            vcpus_per_pcpu: f64::from(vcpus) / f64::from(cell.machine.topology.pcpus()),
            ready_percent,
            p99_ms: draws(&p99).filter(|_| p99.len() == ready.len()),
        }))
    }

    /// Returns what `budget` limits, or `None` if it is not known.
    pub fn figure(&self, budget: Budget) -> Option<Draws> {
        match budget {
            Budget::ReadyPercent(_) => Some(self.ready_percent),
            Budget::P99Ms(_) => self.p99_ms,
        }
    }
}

/// How many copies fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capacity {
    /// The schema, [`SCHEMA`].
    pub schema: &'static str,
    /// The kind of VM.
    pub vm: String,
    /// The budget.
    pub budget: Budget,
    /// Largest number of copies that fit, by the mean of the draws.
    pub fits: usize,
    /// Largest number that fits in all draws, and in some draw.
    pub range: [usize; 2],
    /// Whether even the most copies that were tried fit.
    pub limited: bool,
    /// What was run, fewest copies first.
    pub curve: Vec<Point>,
}

/// Finds out how many copies of `vm` fit `budget`, up to `most`. `run` returns the point of a number of copies, or
/// `None` if it was called off.
///
/// # Errors
/// What `run` fails with.
pub fn search<E>(
    vm: &str,
    budget: Budget,
    most: usize,
    mut run: impl FnMut(usize) -> Result<Option<Point>, E>,
) -> Result<Option<Capacity>, E> {
    let mut curve: Vec<Point> = Vec::new();
    let limit = budget.limit();
    let within = |point: &Point, of: fn(Draws) -> f64| point.figure(budget).is_some_and(|draws| of(draws) <= limit);
    let (mut fits, mut fails) = (0, None);
    let mut next = 1;
    while fails.is_none_or(|fails| fits + 1 < fails) && fits < most {
        let Some(point) = run(next)? else { return Ok(None) };
        if within(&point, |draws| draws.mean) {
            fits = next;
        } else {
            fails = Some(next);
        }
        curve.push(point);
        next = fails.map_or((next * 2).min(most), |fails| fits + (fails - fits) / 2);
    }
    curve.sort_by_key(|point| point.copies);
    let largest = |of: fn(Draws) -> f64| {
        let fitting = curve.iter().take_while(|point| within(point, of));
        fitting.map(|point| point.copies).last().unwrap_or(0)
    };
    let range = [largest(|draws| draws.max), largest(|draws| draws.min)];
    Ok(Some(Capacity {
        schema: SCHEMA,
        vm: vm.to_owned(),
        budget,
        fits,
        range,
        limited: fails.is_none(),
        curve,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what `search` finds where each copy above 10 costs 1 % of ready time, give or take `noise`, and how
    /// often it ran.
    fn found(limit: f64, most: usize, noise: f64) -> (Capacity, usize) {
        let mut runs = 0;
        let capacity = search("web", Budget::ReadyPercent(limit), most, |copies| {
            runs += 1;
            let mean = copies.saturating_sub(10) as f64;
            let draws = [mean - noise, mean, mean + noise];
            Ok::<_, ()>(Some(Point {
                copies,
                vcpus_per_pcpu: copies as f64,
                ready_percent: Draws::of(&draws).expect("three"),
                p99_ms: None,
            }))
        });
        (capacity.expect("no error").expect("not called off"), runs)
    }

    #[test]
    fn the_largest_number_that_fits_is_found_in_few_runs() {
        for limit in 0..60 {
            let (capacity, runs) = found(f64::from(limit), 1000, 0.0);
            let knee = 10 + limit as usize;
            assert_eq!(
                (capacity.fits, capacity.range, capacity.limited),
                (knee, [knee, knee], false)
            );
            assert!(runs <= 14, "{runs} runs for {knee}");
            assert!(capacity.curve.is_sorted_by_key(|point| point.copies));
        }
    }

    #[test]
    fn draws_that_differ_widen_the_range() {
        let (capacity, _) = found(5.0, 1000, 3.0);
        assert_eq!(capacity.fits, 15);
        assert!(
            capacity.range[0] <= 12 && capacity.range[1] >= 15,
            "{:?}",
            capacity.range
        );
    }

    #[test]
    fn no_more_than_the_most_are_tried_and_none_can_fit() {
        let (capacity, _) = found(1e9, 12, 0.0);
        assert_eq!((capacity.fits, capacity.limited), (12, true));
        let (capacity, runs) = found(-1.0, 12, 0.0);
        assert_eq!((capacity.fits, capacity.limited, runs), (0, false, 1));
    }

    #[test]
    fn a_budget_that_the_workload_does_not_know_fits_nothing() {
        let point = Point {
            copies: 1,
            vcpus_per_pcpu: 1.0,
            ready_percent: Draws::of(&[0.0]).expect("one"),
            p99_ms: None,
        };
        assert_eq!(point.figure(Budget::P99Ms(20.0)), None);
    }
}
