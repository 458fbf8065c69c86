//! Published ideas, each as a policy. What is simplified is in the head of its file.

mod boost;
mod co_scheduling;
mod grace;
mod ipi_yield;
mod lag_credit;
mod micro_pool;
mod opportunistic;

pub use boost::Boost;
pub use co_scheduling::CoScheduling;
pub use grace::Grace;
pub use ipi_yield::IpiYield;
pub use lag_credit::LagCredit;
pub use micro_pool::MicroPool;
pub use opportunistic::Opportunistic;

use holdfast_host::{RunState, TaskId, View};

/// Returns whether `task` waits for a pCPU in the middle of kernel code, where it may hold a lock.
fn was_in_kernel(view: &View<'_>, task: TaskId) -> bool {
    let thread = view.thread(task);
    thread.is_some_and(|at| at.run == RunState::Ready && at.guest.in_kernel && !at.guest.spins && !at.guest.halted)
}
