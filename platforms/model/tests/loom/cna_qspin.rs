//! The NUMA-aware queued spinlock on two NUMA nodes, where every head sorts its queue.

use holdfast_history::CnaQspin;
use holdfast_model::{Bounds, Loom, Setup};

use crate::loom::{Lock, few};
use crate::scenario;
use crate::support::holds;

fn two_nodes<L: Lock>(name: &str, cpus: u32, bounds: Bounds) {
    let setup = Setup {
        numa_nodes: 2,
        ..Setup::new(cpus)
    };
    let scenario = format!("{cpus} CPUs on 2 nodes");
    holds::<Loom>(name, &scenario, bounds, scenario::contention::<Loom, L>(&setup, 1, 0));
}

#[test]
fn waiters_of_another_node_are_passed_over() {
    two_nodes::<CnaQspin<1_000_000, 0>>("cna-qspin", 4, few(0));
}

#[test]
fn waiters_passed_over_for_too_long_go_first() {
    two_nodes::<CnaQspin<0, 0>>("cna-qspin", 4, few(0));
}
