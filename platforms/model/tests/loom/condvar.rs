//! Condition variables: no notification is lost, whatever the waiters' patience and their mutexes.

use holdfast_locks::{AllSteps, Tas};
use holdfast_model::{Bounds, Loom, Setup, scenario};

use crate::loom::few;
use crate::support::{ALL, holds};

fn check(scenario: &str, bounds: Bounds, body: impl Fn() + Send + Sync + 'static) {
    holds::<Loom>("condvar", scenario, bounds, body);
}

#[test]
fn a_notification_is_not_lost() {
    let body = scenario::broadcast::<Loom, Tas, AllSteps>(&Setup::new(2));
    check("2 CPUs", ALL, body);
}

#[test]
fn a_broadcast_reaches_every_waiter() {
    let body = scenario::broadcast::<Loom, Tas, AllSteps>(&Setup::new(3));
    check("3 CPUs", few(2), body);
}

#[test]
fn cpus_take_turns() {
    let body = scenario::turns::<Loom, Tas, AllSteps>(&Setup::new(2), 2);
    check("2 CPUs in turn", few(2), body);
}

#[test]
fn an_impatient_waiter_says_whether_it_was_notified() {
    let body = scenario::impatient_waiter::<Loom, Tas, AllSteps>(&Setup::new(3));
    check("impatient waiter", few(2), body);
}

#[test]
fn waiters_with_two_mutexes_do_not_depend_on_each_other() {
    let body = scenario::two_mutexes::<Loom, Tas, AllSteps>(&Setup::new(3));
    check("two mutexes", few(2), body);
}
