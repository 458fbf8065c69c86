//! A pipeline: each item goes through all stages, and each stage is a task that sleeps while it has nothing to do.

use holdfast_guest::{Fork, Limits, Machine, Os, Parameter, Place, Program, Start};
use holdfast_workloads::{Load, StartLine};

/// What an item takes in a pipe.
const ITEM_BYTES: u32 = 64;
/// The role of the tasks that the first one starts.
const STAGE: u32 = 1;

/// The workload.
#[derive(Clone, Debug)]
pub struct Pipeline {
    stages: u32,
    items: u64,
    /// What a stage computes for one item. Nanoseconds.
    work_ns: u64,
}

impl Default for Pipeline {
    fn default() -> Self {
        Pipeline {
            stages: 4,
            items: 100_000,
            work_ns: 20_000,
        }
    }
}

impl Load for Pipeline {
    const THROUGHPUT: Option<&'static str> = Some("items/s");

    fn scale_work(&mut self, share: f64) {
        self.items = (self.items as f64 * share).ceil() as u64;
    }

    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        vec![
            Parameter::new("stages", "tasks, one for each stage", Place::U32(&mut self.stages)).within(2.0, 64.0),
            Parameter::new(
                "work",
                "what a stage computes for one item",
                Place::Nanos(&mut self.work_ns),
            ),
        ]
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(self.clone())
    }
}

impl<M: Machine> Program<M> for Pipeline {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + self.stages,
            pipes: self.stages,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        if start.role == STAGE {
            return self.stage(os, start.argument);
        }
        (0..self.stages).for_each(|pipe| os.open_pipe(pipe, 1));
        StartLine::FIRST.launch(os, Fork::Share, STAGE, self.stages);
        while os.wait().is_some() {}
        os.done(Some(self.items));
    }
}

impl Pipeline {
    /// Stage `number` reads items from the pipe before it, the first one makes them, and all but the last pass them on.
    fn stage<M: Machine>(&self, os: &Os<M>, number: u32) {
        StartLine::FIRST.wait(os);
        for _ in 0..self.items {
            let begun = os.clock();
            let mut missing = if number == 0 { 0 } else { ITEM_BYTES };
            while missing > 0 {
                missing -= os.read_pipe(number - 1, missing).unwrap_or(0);
            }
            os.user(self.work_ns);
            match number + 1 < self.stages {
                true => os.write_pipe(number, ITEM_BYTES),
                false => os.completed(begun),
            }
        }
    }
}
