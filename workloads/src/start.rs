//! What benchmarks with many tasks share: a common start, and a count of work that the tasks divide among themselves.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Fork, Machine, Os, Start};

/// A SysV semaphore at which tasks wait for the start of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct StartLine {
    /// The semaphore's array. The semaphore is the first of it.
    pub array: u32,
}

/// The time in which all tasks reach the start line.
const ARRIVAL_NS: u64 = 20_000_000;

impl StartLine {
    /// At the first semaphore array.
    pub const FIRST: StartLine = StartLine { array: 0 };

    /// Sleeps until the start.
    pub fn wait<M: Machine>(self, os: &Os<M>) {
        os.semaphore_down(self.array, 0);
    }

    /// On the first task, makes `tasks` tasks in `role`, which wait here, and starts them.
    pub fn launch<M: Machine>(self, os: &Os<M>, how: Fork, role: u32, tasks: u32) {
        os.wait_for_cpus();
        for number in 0..tasks {
            os.fork(how, Start::new(role, number));
        }
        self.start(os, tasks);
    }

    /// Waits until all tasks have arrived, begins the measurement, and lets `tasks` tasks start.
    pub fn start<M: Machine>(self, os: &Os<M>, tasks: u32) {
        os.sleep(ARRIVAL_NS);
        os.begin();
        for _ in 0..tasks {
            os.semaphore_up(self.array, 0);
        }
    }
}

/// Pieces of work that no task has begun. Plain memory: the benchmark's own bookkeeping. A real program would divide
/// the work beforehand.
pub(crate) struct Remaining(AtomicU64);

impl Remaining {
    pub(crate) fn new(count: u64) -> Self {
        Remaining(AtomicU64::new(count))
    }

    /// Takes one piece. Returns `false` if none is left.
    pub(crate) fn take(&self) -> bool {
        self.0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Drops the remaining pieces.
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}
