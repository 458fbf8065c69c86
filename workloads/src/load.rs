//! What a workload is made from.

use alloc::boxed::Box;
use alloc::vec::Vec;

use holdfast_guest::{Machine, Parameter, Program};

/// The parameters of a workload: of one of this crate, or of another crate's ([`OwnWorkload`](crate::OwnWorkload)).
pub trait Load: Default {
    /// Whether the program ends.
    const ENDS: bool = true;
    /// The unit in which its users state its throughput. `None` if they ask how long it takes.
    const THROUGHPUT: Option<&'static str> = None;

    /// Reduces the amount of work to `share` of it, or raises it if `share` is above 1. Rates and sizes stay.
    fn scale_work(&mut self, share: f64);

    /// Returns the parameters that experiments can set, as `vm.*.own.NAME`, of a workload of another crate. Those of
    /// this crate have keys of their own.
    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        Vec::new()
    }

    /// Makes the program, for a machine of `cpus` CPUs.
    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>>;
}

/// Returns `share` of `count` operations by `tasks` tasks, but at least ten for each task. In a shorter run, beginning
/// and end would dominate. A share above 1 is more than the full-size work.
pub fn share_of(count: u64, share: f64, tasks: u32) -> u64 {
    let floor = u64::from(tasks) * 10;
    let wanted = libm::round(count as f64 * share) as u64;
    let most = if share > 1.0 { wanted } else { count };
    wanted.max(floor).min(most.max(floor))
}
