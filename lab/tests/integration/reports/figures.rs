//! What operators measure, changes that do nothing, and values of sweeps.

use holdfast_lab::compare;
use holdfast_lab::display;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::results::Case;

use super::{case, whole};

/// A guest next to hogs, on as many pCPUs as it has vCPUs.
const STOLEN: &str = r#"
name = "steal"
title = "a guest next to hogs"
metric = "elapsed"
seeds = 1
scale = 0.003
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1
[host]
scheduler = "eevdf-6.12"
[[vm]]
name = "web"
vcpus = 4
workload = "kernbench"
kernbench.jobs = 8
[[vm]]
name = "hogs"
vcpus = 4
workload = "hog"
[[cases]]
name = "told"
[[cases]]
name = "not-told"
set = { "vm.*.steal_time" = false }
"#;

#[test]
fn what_operators_measure_is_in_the_results() {
    let results = whole(STOLEN);
    let [told, other] = ["told", "not-told"].map(|name| case(&results, name, "default", "web"));
    let figures = told.operators.as_ref().expect("a simulated guest");
    let ready = told.lost_time["runnable"] + told.lost_time["wake_latency"];
    assert!((figures.ready_percent - 100.0 * ready).abs() < 0.01, "{figures:?}");
    assert!(
        (figures.ready_ms_per_20s - 4.0 * 200.0 * figures.ready_percent).abs() < 1e-6,
        "{figures:?}"
    );
    let steal = figures.steal_percent.expect("a record");
    // The guest is told when it runs again, and not of its first wait.
    assert!(steal > 1.0 && steal <= figures.ready_percent + 0.1, "{figures:?}");
    assert!(
        figures.longest_wait_ms >= 1.0 && figures.longest_tick_gap_ms >= 4.0,
        "{figures:?}"
    );
    assert!(figures.exits_per_second["hlt"] > 0.0, "{figures:?}");
    assert_eq!(figures.throttled_periods, None);
    assert_eq!(other.operators.as_ref().expect("a simulated guest").steal_percent, None);
    let hogs = results
        .background
        .iter()
        .find(|beside| beside.vm == "hogs")
        .expect("a neighbor");
    assert!(
        hogs.operators
            .as_ref()
            .is_some_and(|figures| figures.ready_percent > 1.0)
    );
}

/// A guest with a quota, which it does not use up in its serial phases.
const BURST: &str = r#"
name = "burst"
title = "a guest with a quota and its bursts"
metric = "elapsed"
seeds = 8
scale = 0.002
[machine]
profile = "generic-x86"
sockets = 2
cores = 2
threads = 1
[host]
scheduler = "eevdf-6.12"
[[vm]]
name = "pod"
vcpus = 4
cgroup = "own"
quota = "60 ms"
period = "40 ms"
workload = "kernbench"
kernbench.jobs = 2
[[vm]]
name = "hog"
vcpus = 2
workload = "hog"
[[variants]]
name = "none"
[[variants]]
name = "burst"
set = { "vm.pod.burst" = "60 ms" }
[[variants]]
name = "whole"
set = { "vm.pod.quota" = "160 ms" }
"#;

#[test]
fn a_burst_is_a_key_and_is_refused_without_a_quota() {
    let results = whole(BURST);
    let [none, burst, free] = ["none", "burst", "whole"].map(|name| case(&results, "default", name, "pod"));
    assert_ne!(none.history_hash, burst.history_hash, "the burst matters");
    let [slow, fast] = [none, burst].map(|cell| cell.samples.iter().sum::<f64>());
    assert!(fast <= slow, "{fast} and {slow}");
    let figures = |case: &Case| case.operators.clone().expect("a simulated guest");
    assert!(figures(none).throttled_percent.expect("a quota") > 0.0);
    assert!(figures(free).throttled_periods < figures(none).throttled_periods);
    let refused = |set: &str| {
        let options = Options {
            set: vec![set.to_owned()],
            variants: vec!["none".to_owned()],
            ..Options::default()
        };
        let experiment = Experiment::parse("report.toml", &BURST.replace("quota = \"60 ms\"\n", "")).expect("valid");
        Plan::new(experiment, &options).expect_err("refused").to_string()
    };
    for set in ["vm.pod.burst=\"1 ms\"", "vm.*.burst=\"1 ms\"", "guest.burst=\"1 ms\""] {
        assert!(refused(set).contains("a task group with a quota"), "{}", refused(set));
    }
    let too_long = Options {
        set: vec!["vm.pod.burst=\"70 ms\"".to_owned()],
        variants: vec!["none".to_owned()],
        ..Options::default()
    };
    let experiment = Experiment::parse("report.toml", BURST).expect("valid");
    let said = Plan::new(experiment, &too_long)
        .expect_err("more than the quota")
        .to_string();
    assert!(said.contains("at most the quota"), "{said}");
}

/// A guest whose lock two variants name, one of them the one that it has.
const SAME: &str = r#"
name = "same"
title = "a variant that changes nothing"
metric = "elapsed"
seeds = 1
scale = 0.001
[machine]
profile = "generic-x86"
sockets = 1
cores = 2
threads = 1
[[vm]]
name = "guest"
vcpus = 1
workload = "contend"
[[variants]]
name = "one"
[[variants]]
name = "two"
set = { "vm.guest.lock" = "qspin" }
[[variants]]
name = "other"
set = { "vm.guest.contend.think" = "5 us" }
"#;

#[test]
fn a_switch_that_does_nothing_is_told_from_one_with_the_same_result() {
    let results = whole(SAME);
    let compared = compare::variants(&results, None).expect("variants");
    let row = |name: &str| compared.rows.iter().find(|row| row.variant_b == name).expect("a row");
    // A kernel with one CPU takes each lock in the same way.
    assert_eq!(
        row("two").same_history,
        row("two").comparison.expect("samples").ratio == 1.0
    );
    assert!(!row("other").same_history);
    let mut apart = results.clone();
    let first = apart.cases[0].clone();
    apart.cases[1].samples.clone_from(&first.samples);
    apart.cases[1].history_hash = "0".repeat(16);
    let compared = compare::variants(&apart, None).expect("variants");
    assert!(!compared.rows[0].same_history);
    assert_eq!(
        display::verdict(&compared.rows[0]),
        "another history with the same samples"
    );
    apart.cases[1].history_hash.clone_from(&first.history_hash);
    let compared = compare::variants(&apart, None).expect("variants");
    assert_eq!(
        display::verdict(&compared.rows[0]),
        "the same history: what differs did nothing in these runs"
    );
    let said = "two has the same histories as one: what it sets did nothing in these runs";
    assert!(
        compared.remarks.iter().any(|remark| remark == said),
        "{:?}",
        compared.remarks
    );
}

#[test]
fn a_sweep_takes_the_values_that_a_setting_takes() {
    let cells = |sweep: &str| -> Result<Vec<String>, String> {
        let options = Options {
            sweep: vec![sweep.to_owned()],
            ..Options::default()
        };
        let text = super::causes::SMT.split("[[cases]]").next().expect("a head");
        let experiment = Experiment::parse("report.toml", text).expect("valid");
        let plan = Plan::new(experiment, &options).map_err(|problems| problems.to_string())?;
        Ok(plan
            .cells
            .iter()
            .map(|cell| format!("{:?}", cell.config.vms[0].affinity))
            .collect())
    };
    let both = |pcpus: &str| format!("[[{pcpus}], [{pcpus}]]");
    let one = both("0, 1, 2, 3, 6, 7");
    assert_eq!(cells("vm.db.affinity=\"0-3,6-7\""), Ok(vec![one.clone()]));
    assert_eq!(cells("vm.db.affinity=\"0-3,6-7\",\"0-1\""), Ok(vec![one, both("0, 1")]));
    assert_eq!(
        cells("guest.affinity=[0,1],[2,3]"),
        Ok(vec![both("0, 1"), both("2, 3")])
    );
    for sweep in ["vm.db.affinity=0-3,6-7", "vm.*.affinity=0,1", "guest.affinity=0,1"] {
        let said = cells(sweep).expect_err("one list or two values");
        assert!(
            said.contains("commas in a key that takes lists") && said.contains("is one list"),
            "{said}"
        );
    }
}
