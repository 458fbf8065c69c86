//! Runs a plan on several threads. Which thread runs what, and when, shows nowhere in the outcomes.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use holdfast_sim::{Config, Outcome};

use crate::plan::{Cell, Plan};

/// The simulator, as a [`Runner`].
pub use holdfast_sim::run as simulate;
pub use holdfast_sim::{CallOff, Failure};

/// What runs a configuration: the simulator, or a test's stand-in.
pub type Runner<'r> = &'r (dyn Fn(&Config, &CallOff) -> Result<Outcome, Failure> + Sync);

/// Why a run gave no outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The run failed.
    Failure(Failure),
    /// An assertion of the program failed: our fault.
    Panicked(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Failure(failure) => write!(f, "{failure}"),
            RunError::Panicked(message) => write!(f, "internal error, please report it: {message}"),
        }
    }
}

/// One run's end, as it is told to whoever watches.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// The cell.
    pub cell: &'p Cell,
    /// The seed.
    pub seed: u64,
    /// What came of it.
    pub outcome: &'p Result<Outcome, RunError>,
    /// Runs done, this one included.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
}

/// How a plan is run.
#[derive(Clone, Copy)]
pub struct Execution<'r> {
    /// What runs a configuration.
    pub runner: Runner<'r>,
    /// Threads.
    pub jobs: NonZeroUsize,
    /// Set by another thread: no new run begins, and those that run are called off.
    pub call_off: &'r CallOff,
    /// Told of each run's end, from any thread.
    pub progress: &'r (dyn Fn(Progress<'_>) + Sync),
}

/// The outcomes of a plan.
#[derive(Debug)]
pub struct Outcomes {
    seeds: usize,
    /// Seed by seed, cells in the plan's order; `None`: called off before its end.
    slots: Vec<Option<Result<Outcome, RunError>>>,
}

impl Outcomes {
    /// What came of `cell` with the seed at `seed`; `None`: it was called off.
    pub fn get(&self, cell: usize, seed: usize) -> Option<&Result<Outcome, RunError>> {
        let cells = self.slots.len().checked_div(self.seeds)?;
        self.slots.get(seed * cells + cell)?.as_ref()
    }

    /// Whether every run came to an end, good or bad.
    pub fn complete(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }
}

/// Runs `plan`. Seed by seed over all cells, so that what is done when someone calls it off is a smaller, whole experiment.
pub fn run(plan: &Plan, execution: Execution<'_>) -> Outcomes {
    let total = plan.runs();
    let slots: Vec<OnceLock<Result<Outcome, RunError>>> = (0..total).map(|_| OnceLock::new()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while !execution.call_off.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            let cell = &plan.cells[index % plan.cells.len()];
            let seed = plan.seeds[index / plan.cells.len()];
            let Some(outcome) = one(cell, seed, execution) else {
                break;
            };
            let outcome = slots[index].get_or_init(|| outcome);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            (execution.progress)(Progress {
                cell,
                seed,
                outcome,
                done,
                total,
            });
        }
    };
    thread::scope(|scope| {
        let others = execution.jobs.get().min(total.max(1)) - 1;
        for _ in 0..others {
            scope.spawn(work);
        }
        work();
    });
    Outcomes {
        seeds: plan.seeds.len(),
        slots: slots.into_iter().map(OnceLock::into_inner).collect(),
    }
}

/// One run; `None` if it was called off.
fn one(cell: &Cell, seed: u64, execution: Execution<'_>) -> Option<Result<Outcome, RunError>> {
    let config = Config {
        seed,
        ..cell.config.clone()
    };
    // A broken assertion in one run must not cost the others their outcomes. Nothing of the run outlives it.
    let run = catch_unwind(AssertUnwindSafe(|| (execution.runner)(&config, execution.call_off)));
    match run {
        Ok(Err(Failure::CalledOff)) => None,
        Ok(outcome) => Some(outcome.map_err(RunError::Failure)),
        Err(payload) => Some(Err(RunError::Panicked(panic_message(&*payload)))),
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
