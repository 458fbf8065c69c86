//! CPU hogs: busy loops in user mode.

use alloc::boxed::Box;

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::workload::Load;

/// Parameters of the CPU hogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hog {
    /// Number of busy loops. `None` is one for each vCPU, as in the published experiments.
    pub tasks: Option<u32>,
}

/// The length of one stretch of busy looping. Stretches follow each other directly.
const STRETCH_NS: u64 = 1_000_000_000;

/// Busy loops on a machine.
struct Hogs {
    count: u32,
}

impl Load for Hog {
    const ENDS: bool = false;

    fn scale_work(&mut self, _: f64) {}

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Hogs {
            count: self.tasks.unwrap_or(cpus),
        })
    }
}

impl<M: Machine> Program<M> for Hogs {
    fn limits(&self) -> Limits {
        Limits {
            tasks: self.count,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        if start == Start::default() {
            os.wait_for_cpus();
            for argument in 1..self.count {
                os.fork(Fork::Share, Start::new(1, argument));
            }
        }
        if self.count > 0 {
            loop {
                os.user(STRETCH_NS);
            }
        }
    }
}
