//! Runs more seeds of a cell until the interval of its mean is narrow enough, or a budget is spent.
//!
//! - **Reproducible.** Seeds are added in rounds. A round depends on the samples of the rounds before it only, so the
//!   results do not depend on threads or their timing.
//! - **Optimistic.** To stop as soon as an interval is narrow prefers samples that happen to agree. The interval covers
//!   the true mean somewhat less often than 95 % of the time.

use std::convert::Infallible;

use holdfast_sim::Outcome;

use crate::collect::sample;
use crate::options::Adaptive;
use crate::plan::Plan;
use crate::run::{Outcomes, RunError, Slots, slots};
use crate::stats::Center;

/// Fewest seeds of a cell. Two samples can agree by chance.
pub const SEEDS_MIN: u32 = 3;

/// Seeds of a cell at most, for each seed of the first round, unless the user sets a limit.
pub const BUDGET: u32 = 10;

/// What adaptive runs gave.
#[derive(Debug)]
pub struct Adapted {
    /// The plan, with those seeds that at least one cell ran.
    pub plan: Plan,
    /// The outcomes.
    pub outcomes: Outcomes,
    /// Indices of the cells whose intervals stayed too wide, or are not known.
    pub wide: Vec<usize>,
}

/// Runs rounds of `plan`, which has as many seeds as the budget allows. `round` runs the runs at these indices and
/// puts their outcomes into the slots; an empty slot ends the work.
///
/// # Errors
/// Those of `round`.
pub fn run<E>(
    plan: &Plan,
    adaptive: Adaptive,
    mut round: impl FnMut(&[usize], &Slots) -> Result<(), E>,
) -> Result<Adapted, E> {
    let cells = plan.cells.len();
    let slots = slots(plan);
    let first = plan.options.seeds.unwrap_or(plan.experiment.seeds);
    let mut wanted = vec![(first.max(SEEDS_MIN) as usize).min(plan.seeds.len()); cells];
    loop {
        // Seed by seed, so that interrupted rounds leave a smaller complete experiment.
        let chosen: Vec<usize> = (0..slots.len())
            .filter(|index| index / cells < wanted[index % cells] && slots[*index].get().is_none())
            .collect();
        if chosen.is_empty() {
            break;
        }
        round(&chosen, &slots)?;
        if chosen.iter().any(|index| slots[*index].get().is_none()) {
            break;
        }
        for (cell, wanted) in wanted.iter_mut().enumerate() {
            *wanted = more(plan, adaptive, &slots, cell, *wanted).min(plan.seeds.len());
        }
    }
    let wide = (0..cells).filter(|cell| {
        let reach = reach(plan, &slots, *cell, wanted[*cell]);
        reach.is_none_or(|reach| reach > adaptive.share())
    });
    let wide = wide.collect();
    let mut plan = plan.clone();
    plan.seeds.truncate(wanted.iter().copied().max().unwrap_or(0));
    let outcomes = Outcomes::of_some(&plan, slots, wanted);
    Ok(Adapted { plan, outcomes, wide })
}

/// Rounds as far as outcomes are known.
#[derive(Debug)]
pub struct Round {
    /// Indices of the runs of all rounds so far, and of the next one.
    pub runs: Vec<usize>,
    /// Indices of those without an outcome. The rounds are done if there is none.
    pub missing: Vec<usize>,
    /// What the known outcomes give.
    pub adapted: Adapted,
}

/// Returns the rounds of `plan`, of whose runs `outcome` returns the outcomes that are known. Processes that know the
/// same outcomes get the same round, so any of them can run a part of it.
pub fn round(
    plan: &Plan,
    adaptive: Adaptive,
    mut outcome: impl FnMut(usize) -> Option<Result<Outcome, RunError>>,
) -> Round {
    let (mut runs, mut missing) = (Vec::new(), Vec::new());
    let known = |chosen: &[usize], slots: &Slots| -> Result<(), Infallible> {
        for index in chosen {
            runs.push(*index);
            match outcome(*index) {
                Some(outcome) => drop(slots[*index].set(outcome)),
                None => missing.push(*index),
            }
        }
        Ok(())
    };
    let adapted = run(plan, adaptive, known).unwrap_or_else(|never| match never {});
    Round { runs, missing, adapted }
}

/// Returns how far the intervals of the measured guests of a cell reach above their means, at most: a share. `None`
/// without an interval, as after a failure.
fn reach(plan: &Plan, slots: &Slots, cell: usize, seeds: usize) -> Option<f64> {
    let cells = plan.cells.len();
    let outcomes = (0..seeds).map(|seed| slots[seed * cells + cell].get()?.as_ref().ok());
    let outcomes: Vec<_> = outcomes.collect::<Option<_>>()?;
    let vms = plan.cells[cell].config.vms.iter().enumerate();
    let mut widest: f64 = 0.0;
    for (vm, config) in vms.filter(|(_, vm)| vm.measured) {
        let samples: Vec<f64> = outcomes
            .iter()
            .map(|outcome| sample(plan, &config.boot.workload, &outcome.vms[vm]))
            .collect::<Option<_>>()?;
        let center = Center::of(&samples)?;
        widest = widest.max(center.interval?.1 / center.mean - 1.0);
    }
    Some(widest)
}

/// Returns the number of seeds that a cell with `seeds` seeds needs: at most twice as many.
fn more(plan: &Plan, adaptive: Adaptive, slots: &Slots, cell: usize, seeds: usize) -> usize {
    // Further seeds of a cell whose run failed would hide the failure.
    let Some(reach) = reach(plan, slots, cell, seeds) else {
        return seeds;
    };
    if reach <= adaptive.share() {
        return seeds;
    }
    // The interval of logarithms shrinks with the square root of their number.
    let needed = seeds as f64 * (reach.ln_1p() / adaptive.share().ln_1p()).powi(2);
    (needed.ceil() as usize).clamp(seeds + 1, 2 * seeds)
}
