//! Small inputs of users that once failed, in the simulator: what is right for each of them.

mod causes;
mod figures;
mod inputs;
mod service;

use holdfast_lab::collect;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::results::{Case, Results};

use crate::fake::execute;

/// Runs the experiment `text`.
pub fn run(text: &str, options: &Options) -> Results {
    let experiment = Experiment::parse("report.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    let plan = Plan::new(experiment, options).unwrap_or_else(|problems| panic!("{problems}"));
    collect::results(&plan, &execute(&plan, &holdfast_sim::run, 1), "report.toml", "test")
}

/// Runs `text` as it stands. All runs must succeed.
fn whole(text: &str) -> Results {
    let results = run(text, &Options::default());
    assert!(results.failures.is_empty(), "{:?}", results.failures);
    results
}

fn case<'r>(results: &'r Results, case: &str, variant: &str, vm: &str) -> &'r Case {
    let found = results.cases.iter().find(|found| found.id() == (case, variant, vm));
    found.unwrap_or_else(|| panic!("no {case} / {variant} / {vm}"))
}

const OWN_TIME: &str = r#"
name = "own"
title = "a guest that ends early"
metric = "elapsed"
seeds = 1
scale = 0.002
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
[[vm]]
name = "short"
vcpus = 2
affinity = "0-1"
workload = "kernbench"
kernbench.jobs = 2
[[vm]]
name = "long"
vcpus = 2
affinity = "2-3"
workload = "kernbench"
kernbench.jobs = 2
[[variants]]
name = "alike"
[[variants]]
name = "long-slow"
set = { "vm.long.affinity" = "2" }
"#;

#[test]
fn shares_are_of_the_guests_own_time() {
    let results = whole(OWN_TIME);
    let [alike, other] = ["alike", "long-slow"].map(|variant| case(&results, "default", variant, "short"));
    let [longer, much_longer] = ["alike", "long-slow"].map(|variant| case(&results, "default", variant, "long"));
    assert!(
        much_longer.samples[0] > 1.5 * longer.samples[0],
        "the other guest takes longer"
    );
    assert!(
        (alike.samples[0] / other.samples[0] - 1.0).abs() < 0.01,
        "this one does not"
    );
    for (cause, share) in &alike.lost_time {
        let there = other.lost_time[cause];
        assert!((share - there).abs() < 0.01, "{cause}: {share} and {there}");
    }
    assert!((alike.work_shares[0] - other.work_shares[0]).abs() < 0.01);
    // The longest stall is not the rest of the run.
    assert!(
        other.longest_stalls_ns[0] < 100_000_000,
        "{:?}",
        other.longest_stalls_ns
    );
}

const STARVED: &str = r#"
name = "starved"
title = "a guest of nice 19 next to endless host threads of nice -20"
metric = "elapsed"
seeds = 1
scale = 0.001
limit = "2000 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 2
threads = 1
[host]
scheduler = "cfs-6.1"
[[vm]]
name = "db"
vcpus = 2
nice = 19
workload = "contend"
contend.calls = 20000
[[task]]
name = "hog-1"
nice = -20
[[task]]
name = "hog-2"
nice = -20
"#;

#[test]
fn a_guest_that_waits_long_for_pcpus_is_not_stuck() {
    let results = whole(STARVED);
    let db = &results.cases[0];
    assert!(
        db.counters["pcpu_wait_ns_max"] > 20e9,
        "{:?}",
        db.counters["pcpu_wait_ns_max"]
    );
    assert!(
        db.counters["tick_gap_ns_max"] >= 4e6,
        "{:?}",
        db.counters["tick_gap_ns_max"]
    );
}

/// A guest that is in its kernel only, next to a guest that computes.
const KERNEL_ONLY: &str = r#"
name = "kernel-only"
title = "tasks that call a driver and do nothing else"
metric = "throughput"
unit = "calls/s"
seeds = 1
scale = 1
limit = "60 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1
[[vm]]
name = "driver"
vcpus = 8
workload = "contend"
contend.think = "0 ns"
contend.held = "1 ms"
contend.span = "25 s"
[[vm]]
name = "hog"
vcpus = 4
workload = "hog"
"#;

#[test]
fn a_convoy_whose_locks_are_taken_goes_on() {
    let results = whole(KERNEL_ONLY);
    assert!(results.cases[0].samples[0] > 1.0);
}
