//! Runs a plan on several threads. The outcomes do not depend on the number of threads or their timing.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use holdfast_sim::{Config, Outcome};

use crate::meter::{Cost, Meter};
use crate::plan::{Cell, Plan};

/// The simulator, as a [`Runner`].
pub use holdfast_sim::run as simulate;
pub use holdfast_sim::{CallOff, Failure};

/// A function that runs a configuration: the simulator, a real host, or a test's stand-in.
pub type Runner<'r> = &'r (dyn Fn(&Config, &CallOff) -> Result<Outcome, Failure> + Sync);

/// Error of a run without outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The run failed.
    Failure(Failure),
    /// An assertion of the program failed, which is a bug.
    Panicked(String),
    /// The run failed earlier, and its record has this message.
    Recorded(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Failure(failure) => write!(f, "{failure}"),
            RunError::Recorded(message) => f.write_str(message),
            RunError::Panicked(message) => write!(f, "internal error, please report it: {message}"),
        }
    }
}

/// Report of the end of one run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// The cell.
    pub cell: &'p Cell,
    /// The seed.
    pub seed: u64,
    /// Outcome of the run.
    pub outcome: &'p Result<Outcome, RunError>,
    /// Number of finished runs, including this one.
    pub done: usize,
    /// Number of all runs.
    pub total: usize,
}

/// Execution of a plan.
#[derive(Clone, Copy)]
pub struct Execution<'r> {
    /// The function that runs a configuration.
    pub runner: Runner<'r>,
    /// Number of threads.
    pub jobs: NonZeroUsize,
    /// Flag set by another thread: no new run starts, and current runs are called off.
    pub call_off: &'r CallOff,
    /// Called at the end of each run, from any thread.
    pub progress: &'r (dyn Fn(Progress<'_>) + Sync),
}

/// The outcomes of a plan.
#[derive(Debug)]
pub struct Outcomes {
    seeds: usize,
    /// Seed by seed, cells in the plan's order; `None` for a run that was called off, or that is not wanted.
    slots: Vec<Option<Result<Outcome, RunError>>>,
    /// Number of seeds of each cell.
    wanted: Vec<usize>,
}

/// A place for the outcome of each run: seed by seed, cells in the plan's order.
pub type Slots = Vec<OnceLock<Result<Outcome, RunError>>>;

/// Returns empty slots for all runs of `plan`.
pub fn slots(plan: &Plan) -> Slots {
    (0..plan.runs()).map(|_| OnceLock::new()).collect()
}

impl Outcomes {
    /// Returns the outcomes in `slots`, as many as `plan` has runs: seed by seed, cells in the plan's order.
    pub fn new(plan: &Plan, slots: Vec<Option<Result<Outcome, RunError>>>) -> Outcomes {
        assert_eq!(
            slots.len(),
            plan.runs(),
            "one slot for each run of {}",
            plan.experiment.name
        );
        Outcomes {
            seeds: plan.seeds.len(),
            slots,
            wanted: vec![plan.seeds.len(); plan.cells.len()],
        }
    }

    /// Returns the outcomes in `slots`, without those after the seeds of `plan`. Of each cell so many seeds are
    /// `wanted`.
    pub fn of_some(plan: &Plan, slots: Slots, wanted: Vec<usize>) -> Outcomes {
        let slots = slots.into_iter().take(plan.runs()).map(OnceLock::into_inner);
        Outcomes {
            wanted,
            ..Outcomes::new(plan, slots.collect())
        }
    }

    /// Returns the outcome of `cell` with the seed at `seed`, or `None` if the run was called off.
    pub fn get(&self, cell: usize, seed: usize) -> Option<&Result<Outcome, RunError>> {
        let cells = self.slots.len().checked_div(self.seeds)?;
        self.slots.get(seed * cells + cell)?.as_ref()
    }

    /// Returns whether every wanted run ended, with success or failure.
    pub fn complete(&self) -> bool {
        let ended = |(cell, seeds): (usize, &usize)| (0..*seeds).all(|seed| self.get(cell, seed).is_some());
        self.wanted.iter().enumerate().all(ended)
    }
}

/// Runs `plan` seed by seed over all cells, so that an interrupted run leaves a smaller complete experiment.
pub fn run(plan: &Plan, execution: Execution<'_>) -> Outcomes {
    let slots = slots(plan);
    let all: Vec<usize> = (0..slots.len()).collect();
    fill(plan, &all, execution, &slots);
    Outcomes::new(plan, slots.into_iter().map(OnceLock::into_inner).collect())
}

/// Runs those runs of `plan` whose indices are in `chosen`, and puts their outcomes into `slots`. The slot of a run
/// that was called off stays empty.
pub fn fill(plan: &Plan, chosen: &[usize], execution: Execution<'_>, slots: &Slots) {
    each(plan, chosen, execution, &|_| false, &|ended| {
        let _ = slots[ended.index].set(ended.outcome);
    });
}

/// The end of one run, with what it cost.
#[derive(Debug)]
pub struct Ended {
    /// Index of the run: seed by seed, cells in the plan's order.
    pub index: usize,
    /// Outcome of the run.
    pub outcome: Result<Outcome, RunError>,
    /// What the run cost this machine.
    pub cost: Cost,
}

/// Runs those runs of `plan` whose indices are in `chosen`, in that order, without those for which `is_done` returns
/// true just before their start. Gives each to `end`, from the thread that ran it.
pub fn each(
    plan: &Plan,
    chosen: &[usize],
    execution: Execution<'_>,
    is_done: &(dyn Fn(usize) -> bool + Sync),
    end: &(dyn Fn(Ended) + Sync),
) {
    let total = chosen.len();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = execution.jobs.get().min(total.max(1));
    let work = || {
        while !execution.call_off.is_called() {
            let Some(&index) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            if is_done(index) {
                done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (cell, seed) = plan.at(index);
            let meter = Meter::start(threads == 1);
            let Some(outcome) = one(cell, seed, execution) else {
                break;
            };
            let cost = meter.stop();
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            (execution.progress)(Progress {
                cell,
                seed,
                outcome: &outcome,
                done,
                total,
            });
            end(Ended { index, outcome, cost });
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// Runs one cell with one seed. Returns `None` if it was called off.
fn one(cell: &Cell, seed: u64, execution: Execution<'_>) -> Option<Result<Outcome, RunError>> {
    let config = Config {
        seed,
        ..cell.config.clone()
    };
    // A failed assertion in one run must not discard the outcomes of the others. No state of the run survives it.
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
