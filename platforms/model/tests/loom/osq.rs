//! Queue of optimistic spinners: handover, and leaving from every place in the queue.

use holdfast_locks::AllSteps;
use holdfast_model::{Bounds, Loom, Setup};

use crate::loom::{ALL, few};
use crate::scenario;
use crate::support::holds;

fn spinners(cpus: u32, rounds: u32, impatient: u32, bounds: Bounds) {
    let name = format!("{cpus} CPUs, {:b} leave", impatient);
    let body = scenario::optimistic_spinners::<Loom, AllSteps>(&Setup::new(cpus), rounds, impatient);
    holds::<Loom>("osq", &name, bounds, body);
}

#[test]
fn one_head_at_a_time() {
    spinners(2, 1, 0, ALL);
    spinners(2, 2, 0, few(3));
    spinners(3, 1, 0, few(2));
}

#[test]
fn the_last_leaves() {
    spinners(2, 1, 0b10, ALL);
    spinners(2, 2, 0b11, few(2));
}

#[test]
fn one_leaves_from_the_middle() {
    spinners(3, 1, 0b010, few(2));
}

#[test]
fn neighbours_leave_together() {
    spinners(3, 1, 0b110, few(2));
    spinners(3, 1, 0b111, few(2));
}

#[test]
fn two_of_four_leave() {
    spinners(4, 1, 0b0110, few(1));
}
