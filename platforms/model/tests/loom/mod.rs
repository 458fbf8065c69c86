//! Tests whether the locks' orderings are sufficient: few CPUs, and every execution or all with few preemptions.

mod biased;
mod cna_qspin;
mod kinds;
mod osq;
mod qrwlock;
mod requeue;
mod unqueued;
mod variants;

use holdfast_locks::RawLock;
use holdfast_model::{Bounds, Checker as _, Cpu, Loom, Setup};

use crate::scenario;
use crate::support::holds;

/// A lock that loom can run.
pub trait Lock: RawLock<Cpu<Loom>> + 'static {}
impl<L: RawLock<Cpu<Loom>> + 'static> Lock for L {}

const ALL: Bounds = Bounds::ALL;

const fn few(preemptions: usize) -> Bounds {
    Bounds::preemptions(preemptions)
}

fn two_cpus<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::contention::<Loom, L>(&Setup::new(2), 1, 0);
    holds::<Loom>(name, "2 CPUs", bounds, body);
}

fn two_cpus_twice<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::contention::<Loom, L>(&Setup::new(2), 2, 0);
    holds::<Loom>(name, "2 CPUs, twice", bounds, body);
}

fn three_cpus<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::contention::<Loom, L>(&Setup::new(3), 1, 0);
    holds::<Loom>(name, "3 CPUs", bounds, body);
}

fn four_cpus<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::contention::<Loom, L>(&Setup::new(4), 1, 0);
    holds::<Loom>(name, "4 CPUs", bounds, body);
}

fn try_lock<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::try_lock::<Loom, L>(&Setup::new(2));
    holds::<Loom>(name, "try_lock", bounds, body);
}

fn freed_at_once<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::freed_at_once::<Loom, L>(&Setup::new(2));
    holds::<Loom>(name, "freed at once", bounds, body);
}

/// Asserts that the hazard of a lock whose unlock accesses the word after the release is real, and found.
fn touched_after_release<L: Lock>(name: &str) {
    let body = scenario::freed_at_once::<Loom, L>(&Setup::new(2));
    let failure = Loom::explore(&ALL, body).expect_err(name);
    assert!(failure.message.contains("Causality violation"), "{name}: {failure}");
}

fn interrupted_waiter<L: Lock>(name: &str, bounds: Bounds) {
    let body = scenario::interrupted_waiter::<Loom, L>(&Setup::new(2));
    holds::<Loom>(name, "interrupted waiter", bounds, body);
}

/// Head and tail shortly before they wrap. Bit 0 of the head is a flag in some ticket locks, and clear here.
fn ticket_wrap<L: Lock>(name: &str, bounds: Bounds) {
    for initial in [0xfffe_fffe, 0xfffc_fffc] {
        let body = scenario::contention::<Loom, L>(&Setup::new(2), 2, initial);
        holds::<Loom>(name, "tickets wrap", bounds, body);
    }
}
