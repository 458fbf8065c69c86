//! A pipeline: each item goes through all stages, and each stage is a task that sleeps while it has nothing to do.

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};
use holdfast_workloads::{Load, StartLine};

/// What a stage computes for one item. Nanoseconds.
const WORK_NS: u64 = 20_000;
/// What an item takes in a pipe.
const ITEM_BYTES: u32 = 64;
/// The role of the tasks that the first one starts.
const STAGE: u32 = 1;

/// The workload, with `STAGES` stages.
#[derive(Clone, Debug)]
pub struct Pipeline<const STAGES: u32> {
    items: u64,
}

impl<const STAGES: u32> Default for Pipeline<STAGES> {
    fn default() -> Self {
        Pipeline { items: 100_000 }
    }
}

impl<const STAGES: u32> Load for Pipeline<STAGES> {
    const THROUGHPUT: Option<&'static str> = Some("items/s");

    fn scale_work(&mut self, share: f64) {
        self.items = (self.items as f64 * share).ceil() as u64;
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(self.clone())
    }
}

impl<const STAGES: u32, M: Machine> Program<M> for Pipeline<STAGES> {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + STAGES,
            pipes: STAGES,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        if start.role == STAGE {
            return self.stage(os, start.argument);
        }
        (0..STAGES).for_each(|pipe| os.open_pipe(pipe, 1));
        StartLine::FIRST.launch(os, Fork::Share, STAGE, STAGES);
        while os.wait().is_some() {}
        os.done(Some(self.items));
    }
}

impl<const STAGES: u32> Pipeline<STAGES> {
    /// Stage `number` reads items from the pipe before it, the first one makes them, and all but the last pass them on.
    fn stage<M: Machine>(&self, os: &Os<M>, number: u32) {
        StartLine::FIRST.wait(os);
        for _ in 0..self.items {
            let begun = os.clock();
            let mut missing = if number == 0 { 0 } else { ITEM_BYTES };
            while missing > 0 {
                missing -= os.read_pipe(number - 1, missing).unwrap_or(0);
            }
            os.user(WORK_NS);
            match number + 1 < STAGES {
                true => os.write_pipe(number, ITEM_BYTES),
                false => os.completed(begun),
            }
        }
    }
}
