//! Finds the first difference between two executions of a plan.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_sim::{Outcome, VmOutcome};

use crate::plan::Plan;
use crate::run::{Outcomes, RunError};

/// The first difference between two executions of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// The seed of the runs.
    pub seed: u64,
    /// The figure that differs, with both values.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "case {}, variant {}, seed {}: {}",
            self.case, self.variant, self.seed, self.what
        )
    }
}

/// Returns the first difference, seed by seed over all cells. Runs that were called off on either side are skipped.
pub fn first_difference(plan: &Plan, first: &Outcomes, second: &Outcomes) -> Option<Difference> {
    for (position, seed) in plan.seeds.iter().enumerate() {
        for (index, cell) in plan.cells.iter().enumerate() {
            let (Some(a), Some(b)) = (first.get(index, position), second.get(index, position)) else {
                continue;
            };
            if let Some(what) = difference(a, b) {
                return Some(Difference {
                    case: cell.case.clone(),
                    variant: cell.variant.clone(),
                    seed: *seed,
                    what,
                });
            }
        }
    }
    None
}

fn difference(a: &Result<Outcome, RunError>, b: &Result<Outcome, RunError>) -> Option<String> {
    match (a, b) {
        (Ok(a), Ok(b)) => outcome(a, b),
        (Err(a), Err(b)) => unequal("failure", a.to_string(), b.to_string()),
        (Ok(_), Err(error)) => Some(format!("the second run failed: {error}")),
        (Err(error), Ok(_)) => Some(format!("the first run failed: {error}")),
    }
}

fn outcome(a: &Outcome, b: &Outcome) -> Option<String> {
    // Figures that users understand come first, the hash of the history last: it differs whenever anything does.
    let engine = |outcome: &Outcome| {
        outcome
            .engine
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    a.vms
        .iter()
        .zip(&b.vms)
        .find_map(|(a, b)| guest(a, b))
        .or_else(|| unequal("end of the run, ns", a.end_ns, b.end_ns))
        .or_else(|| counts("engine", &engine(a), &engine(b)))
        .or_else(|| {
            unequal(
                "history hash",
                format!("{:016x}", a.history_hash),
                format!("{:016x}", b.history_hash),
            )
        })
}

fn guest(a: &VmOutcome, b: &VmOutcome) -> Option<String> {
    let name = |what: &str| format!("guest {}: {what}", a.name);
    let lost = |vm: &VmOutcome| {
        vm.lost_time_ps
            .iter()
            .map(|(cause, picos)| ((*cause).to_owned(), *picos))
            .collect()
    };
    let shown = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    unequal(&name("elapsed ns"), shown(a.elapsed_ns), shown(b.elapsed_ns))
        .or_else(|| unequal(&name("operations"), shown(a.operations), shown(b.operations)))
        .or_else(|| unequal(&name("longest stall, ns"), a.longest_stall_ns, b.longest_stall_ns))
        .or_else(|| counts(&name("counter"), &a.counters, &b.counters))
        .or_else(|| counts(&name("lost time, ps"), &lost(a), &lost(b)))
}

fn counts(what: &str, a: &BTreeMap<String, u64>, b: &BTreeMap<String, u64>) -> Option<String> {
    let names = a.keys().chain(b.keys());
    let value = |map: &BTreeMap<String, u64>, name: &String| map.get(name).copied().unwrap_or(0);
    names
        .into_iter()
        .find_map(|name| unequal(&format!("{what} {name}"), value(a, name), value(b, name)))
}

fn unequal<T: PartialEq + fmt::Display>(what: &str, a: T, b: T) -> Option<String> {
    (a != b).then(|| format!("{what}: {a}, then {b}"))
}
