//! Small programs over reader-writer locks, condition variables and optimistic spinners, with those over any lock.

mod condvars;
mod requeues;
mod rwlocks;
mod spinners;
mod tables;

use holdfast_locks::CpuId;
use holdfast_locks::conformance::Job;
use holdfast_model::{Checker, Cpu};

pub use holdfast_model::scenario::*;
pub use requeues::{requeued_broadcast, requeued_impatience, requeued_turns};
pub use rwlocks::{
    coming_reader, downgraded_writer, queue_behind, readers_and_writers, readers_and_writers_after_a_read,
    readers_and_writers_of, tries, waiting_writer, writer_that_reads,
};
pub use spinners::optimistic_spinners;
pub use tables::{equal_tickets, shared_entry};

fn job<C: Checker>(cpu: u32, body: impl FnOnce(&Cpu<C>) + Send + 'static) -> (CpuId, Job<Cpu<C>>) {
    (CpuId(cpu), Job::new(body))
}
