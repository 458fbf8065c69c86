//! Condition variables over the kernel's queues: no notification is lost, and the memory may be freed after `destroy`.

use holdfast_locks::{AllSteps, Tas};
use holdfast_model::{Bounds, Loom, Setup};

use crate::loom::few;
use crate::scenario;
use crate::support::{ALL, holds};

fn check(scenario: &str, bounds: Bounds, body: impl Fn() + Send + Sync + 'static) {
    holds::<Loom>("requeue", scenario, bounds, body);
}

#[test]
fn a_notification_is_not_lost() {
    let body = scenario::requeued_broadcast::<Loom, Tas, AllSteps>(&Setup::new(2), false);
    check("2 CPUs", ALL, body);
}

#[test]
fn a_broadcast_reaches_every_waiter() {
    let body = scenario::requeued_broadcast::<Loom, Tas, AllSteps>(&Setup::new(3), false);
    check("3 CPUs", few(2), body);
}

#[test]
fn the_memory_may_be_freed_after_destroy() {
    for cpus in [2, 3] {
        let body = scenario::requeued_broadcast::<Loom, Tas, AllSteps>(&Setup::new(cpus), true);
        check(&format!("{cpus} CPUs, destroyed"), few(2), body);
    }
}

#[test]
fn cpus_take_turns() {
    let body = scenario::requeued_turns::<Loom, Tas, AllSteps>(&Setup::new(2), 2);
    check("2 CPUs in turn", few(2), body);
}

#[test]
fn an_impatient_waiter_takes_no_notification() {
    let body = scenario::requeued_impatience::<Loom, Tas, AllSteps>(&Setup::new(3));
    check("impatient waiter", few(2), body);
}
