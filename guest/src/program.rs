//! What runs on the kernel: a program of tasks.

use crate::limits::{Limits, Start};
use crate::machine::Machine;
use crate::os::Os;

/// A program: what its tasks do. All tasks share it, and the program must protect what they change in it.
pub trait Program<M: Machine> {
    /// Returns how much of each kernel table the program needs.
    fn limits(&self) -> Limits;
    /// Runs a task, which exits when this returns. The first task gets `Start::default()`.
    fn run(&self, os: &Os<M>, start: Start);
}
