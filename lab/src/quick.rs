//! What a quick validation runs: the cases that can be judged within a limit of CPU time, by their measured costs.

use std::collections::BTreeSet;

use crate::experiment::{Experiment, Quantity};
use crate::options::Options;
use crate::shipped::Costs;

/// CPU time of a quick validation in seconds: 5 minutes on 2 CPUs, less a fifth for a slower machine.
pub const BUDGET_S: f64 = 480.0;

/// Fewest seeds of a case that is run with fewer than its own. Two prove nearly nothing.
const SEEDS_MIN: u32 = 3;

/// Cases of one experiment that are run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the experiment.
    pub experiment: String,
    /// Names of the cases.
    pub cases: Vec<String>,
    /// Names of the variants with a published figure.
    pub variants: Vec<String>,
    /// Runs of each cell.
    pub seeds: u32,
    /// Runs of each cell in a whole validation.
    pub seeds_whole: u32,
    /// Expected CPU time of all runs in seconds.
    pub cpu_s: f64,
}

impl Part {
    /// Returns the options of its plan.
    pub fn options(&self) -> Options {
        Options {
            seeds: Some(self.seeds),
            cases: self.cases.clone(),
            variants: self.variants.clone(),
            ..Options::default()
        }
    }
}

/// A case that is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// Expected CPU time of its runs in seconds; `None` if it was not measured.
    pub cpu_s: Option<f64>,
}

/// What a quick validation runs and leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// What is run, the cheapest first.
    pub parts: Vec<Part>,
    /// What is left out.
    pub left: Vec<Left>,
}

/// A case with published figures.
struct Candidate<'e> {
    experiment: &'e Experiment,
    case: &'e str,
    variants: BTreeSet<&'e str>,
    /// Whether two variants have published figures of one guest, so that there is an order to judge.
    has_order: bool,
    /// CPU time of one seed of all its variants in seconds.
    seed_s: Option<f64>,
}

impl Candidate<'_> {
    /// Returns the expected CPU time of `seeds` in seconds.
    fn cpu_s(&self, seeds: u32) -> Option<f64> {
        self.seed_s.map(|seed_s| seed_s * f64::from(seeds))
    }
}

impl Quick {
    /// Chooses cases of `experiments` that take `budget_s` seconds of CPU time together.
    ///
    /// Cases with an order of variants come before cases with levels only, and cheap ones before expensive ones. What
    /// does not fit with all of its seeds gets fewer, in the second round.
    pub fn choose(experiments: &[Experiment], costs: &Costs, budget_s: f64) -> Quick {
        let mut candidates: Vec<Candidate<'_>> = experiments.iter().flat_map(|of| candidates(of, costs)).collect();
        let cost = |of: &Candidate<'_>| of.cpu_s(of.experiment.seeds).unwrap_or(f64::INFINITY);
        candidates.sort_by(|a, b| b.has_order.cmp(&a.has_order).then(cost(a).total_cmp(&cost(b))));
        let mut quick = Quick::default();
        let mut left_s = budget_s;
        let mut take = |candidate: &Candidate<'_>, seeds: u32| {
            let cpu_s = candidate.cpu_s(seeds).filter(|cpu_s| *cpu_s <= left_s)?;
            left_s -= cpu_s;
            quick.add(candidate, seeds, cpu_s);
            Some(())
        };
        candidates.retain(|candidate| take(candidate, candidate.experiment.seeds).is_none());
        candidates.retain(|candidate| {
            let most = (SEEDS_MIN..candidate.experiment.seeds).rev();
            most.into_iter().find_map(|seeds| take(candidate, seeds)).is_none()
        });
        let left = candidates.iter().map(|candidate| Left {
            experiment: candidate.experiment.name.clone(),
            case: candidate.case.to_owned(),
            cpu_s: candidate.cpu_s(candidate.experiment.seeds),
        });
        quick.left = left.collect();
        quick
    }

    /// Adds a case to the part that has its experiment, seeds and variants, or to a new one.
    fn add(&mut self, candidate: &Candidate<'_>, seeds: u32, cpu_s: f64) {
        let experiment = &candidate.experiment.name;
        let variants: Vec<String> = candidate.variants.iter().map(|name| (*name).to_owned()).collect();
        let same = |part: &&mut Part| (&part.experiment, part.seeds, &part.variants) == (experiment, seeds, &variants);
        if let Some(part) = self.parts.iter_mut().find(same) {
            part.cases.push(candidate.case.to_owned());
            part.cpu_s += cpu_s;
            return;
        }
        self.parts.push(Part {
            experiment: experiment.clone(),
            cases: vec![candidate.case.to_owned()],
            variants,
            seeds,
            seeds_whole: candidate.experiment.seeds,
            cpu_s,
        });
    }

    /// Returns the expected CPU time in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.parts.iter().map(|part| part.cpu_s).sum()
    }
}

/// Returns the cases of `experiment` with published figures.
fn candidates<'e>(experiment: &'e Experiment, costs: &Costs) -> Vec<Candidate<'e>> {
    let rows = || experiment.published.iter().map(|(row, _)| row);
    let candidate = |case: &'e str| {
        let of_case = || rows().filter(|row| row.case == case);
        let variants: BTreeSet<&str> = of_case().map(|row| row.variant.as_str()).collect();
        let seconds = |variant: &&str| costs.run_s(&experiment.name, case, variant);
        let mut metrics = of_case().filter(|row| row.of == Quantity::Metric);
        let twins = |a| of_case().any(|b| b.of == Quantity::Metric && is_pair(a, b));
        (!variants.is_empty()).then(|| Candidate {
            experiment,
            case,
            has_order: metrics.any(twins),
            seed_s: variants.iter().map(seconds).sum(),
            variants,
        })
    };
    let cases = experiment.cases.iter().map(|case| case.name.as_str());
    cases.filter_map(candidate).collect()
}

/// Returns whether two figures are of one guest under two variants.
fn is_pair(a: &crate::experiment::Published, b: &crate::experiment::Published) -> bool {
    a.vm == b.vm && a.variant != b.variant
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::Plan;
    use crate::shipped::{CellCost, EXPERIMENTS, costs};

    fn shipped() -> Vec<Experiment> {
        let parse = |shipped: &crate::shipped::Shipped| Experiment::parse(shipped.file, shipped.text);
        EXPERIMENTS
            .iter()
            .map(|shipped| parse(shipped).expect("a valid experiment"))
            .collect()
    }

    /// Returns each case with published figures, by experiment.
    fn published(experiments: &[Experiment]) -> BTreeSet<(String, String)> {
        let of = |experiment: &Experiment| {
            let rows = experiment.published.iter();
            let pair = rows.map(|(row, _)| (experiment.name.clone(), row.case.clone()));
            pair.collect::<Vec<_>>()
        };
        experiments.iter().flat_map(of).collect()
    }

    /// Returns each case that is run or left out, by experiment.
    fn named(quick: &Quick) -> Vec<(String, String)> {
        let run = quick.parts.iter().flat_map(|part| {
            let case = |case: &String| (part.experiment.clone(), case.clone());
            part.cases.iter().map(case).collect::<Vec<_>>()
        });
        let left = quick
            .left
            .iter()
            .map(|left| (left.experiment.clone(), left.case.clone()));
        run.chain(left).collect()
    }

    #[test]
    fn the_shipped_choice_fits_five_minutes_and_judges_most_experiments() {
        let experiments = shipped();
        let quick = Quick::choose(&experiments, costs(), BUDGET_S);
        assert!(quick.cpu_s() <= BUDGET_S, "{}", quick.cpu_s());
        assert!(quick.cpu_s() > BUDGET_S / 2.0, "{}", quick.cpu_s());
        let run: BTreeSet<&str> = quick.parts.iter().map(|part| part.experiment.as_str()).collect();
        let all: BTreeSet<String> = published(&experiments).into_iter().map(|(name, _)| name).collect();
        assert!(run.len() * 3 > all.len() * 2, "{run:?} of {all:?}");
        for part in &quick.parts {
            let experiment = experiments.iter().find(|it| it.name == part.experiment);
            let plan = Plan::new(experiment.expect("it is shipped").clone(), &part.options());
            assert!(plan.expect("a valid plan").runs() > 0, "{part:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let experiments = shipped();
        let quick = Quick::choose(&experiments, &Costs::new("none", []), BUDGET_S);
        assert!(quick.parts.is_empty() && quick.left.iter().all(|left| left.cpu_s.is_none()));
        assert_eq!(quick.left.len(), published(&experiments).len());
    }

    proptest! {
        #[test]
        fn every_case_is_run_or_left_out_once_and_the_budget_holds(
            budget_s in 0.0_f64..3000.0,
            factors in prop::collection::vec(0.01_f64..100.0, 1..9),
        ) {
            let experiments = shipped();
            let mut factors = factors.iter().cycle();
            let cells = experiments.iter().flat_map(|of| {
                let pairs = of.cases.iter().flat_map(|case| of.variants.iter().map(move |variant| (case, variant)));
                pairs.map(|(case, variant)| (of.name.clone(), case.name.clone(), variant.name.clone()))
            });
            let cells = cells.map(|(experiment, case, variant)| CellCost {
                experiment,
                case,
                variant,
                cpu_s: *factors.next().expect("it is endless"),
            });
            let quick = Quick::choose(&experiments, &Costs::new("any", cells.collect::<Vec<_>>()), budget_s);
            prop_assert!(quick.cpu_s() <= budget_s * (1.0 + 1e-9));
            let mut named = named(&quick);
            named.sort();
            let published: Vec<_> = published(&experiments).into_iter().collect();
            prop_assert_eq!(named, published);
            for part in &quick.parts {
                prop_assert!(part.seeds <= part.seeds_whole);
                prop_assert!(part.seeds >= SEEDS_MIN.min(part.seeds_whole));
            }
        }
    }
}
