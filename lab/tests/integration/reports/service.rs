//! What the users of each guest ask: rates, and how long an operation takes.

use holdfast_lab::compare::{self, Judgment};
use holdfast_lab::doubts::doubts;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::service::{Latency, by_latency};

use super::{case, run, whole};

/// A database, a broker, a client on the network and two builders.
const MIXED: &str = r#"
name = "mixed"
title = "guests whose users ask different questions"
metric = "own"
seeds = 3
scale = 0.002
limit = "2000 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1
[guest]
cgroup = "own"
[[vm]]
name = "db"
vcpus = 4
workload = "pgbench"
pgbench.clients = 4
work = 10
[[vm]]
name = "broker"
vcpus = 2
workload = "amqp"
[[vm]]
name = "net"
vcpus = 1
workload = "netperf"
netperf.transactions = 150000
[[vm]]
name = "builder"
count = 2
vcpus = 2
workload = "kernbench"
[[variants]]
name = "as it is"
[[variants]]
name = "limited"
set = { "vm.db.quota" = "10 ms" }
"#;

#[test]
fn each_guest_has_the_metric_of_its_users() {
    let results = whole(MIXED);
    let of = |vm: &str| case(&results, "default", "as it is", vm);
    for (vm, metric, unit, better) in [
        ("db", "throughput", "transactions/s", "higher"),
        ("broker", "throughput", "messages/s", "higher"),
        ("net", "throughput", "transactions/s", "higher"),
        ("builder-1", "elapsed", "s", "lower"),
    ] {
        let found = of(vm);
        assert_eq!(
            (&*found.metric, &*found.unit, &*found.better),
            (metric, unit, better),
            "{vm}"
        );
        assert_eq!(found.service.is_some(), metric == "throughput", "{vm}");
    }
    for vm in ["db", "broker", "net"] {
        let service = of(vm).service.as_ref().expect("it counts operations");
        assert_eq!(service.rates, of(vm).samples, "{vm}");
        let times = service.p50_ms.iter().zip(&service.p99_ms).zip(&service.longest_ms);
        for ((p50, p99), longest) in times {
            assert!(p50 <= p99 && p99 <= longest, "{vm}: {service:?}");
        }
    }
    assert_eq!(of("db").service.as_ref().expect("a database").operations, [400; 3]);
    assert_eq!(of("broker").service.as_ref().expect("a broker").operations, [2000; 3]);
    let total = results.totals.iter().find(|total| total.vm == "builder");
    assert_eq!(total.expect("two builders").unit, "s");
}

/// Four clients, each with one transaction at a time, and nothing else on the host.
const CLOSED: &str = r#"
name = "closed"
title = "clients that wait for their answers"
metric = "throughput"
unit = "transactions/s"
seeds = 1
scale = 1
[machine]
profile = "generic-x86"
sockets = 1
cores = 8
threads = 1
[[vm]]
name = "db"
vcpus = 8
workload = "pgbench"
pgbench.clients = 4
pgbench.transactions = 2000
"#;

#[test]
fn rate_and_time_of_clients_that_wait_obey_littles_law() {
    let results = whole(CLOSED);
    let service = results.cases[0].service.as_ref().expect("a database");
    // Clients = rate x mean time, and without neighbors the median is near the mean.
    let clients = service.rates[0] * service.p50_ms[0] / 1e3;
    assert!((3.0..4.4).contains(&clients), "{clients}: {service:?}");
    // Two pairs may share a vCPU for a while.
    assert!(service.p99_ms[0] < 4.0 * service.p50_ms[0], "{service:?}");
}

#[test]
fn a_quota_shows_in_the_slowest_hundredth() {
    let results = whole(&MIXED.replacen("seeds = 3", "seeds = 6", 1));
    let [free, limited] = ["as it is", "limited"].map(|variant| {
        let service = case(&results, "default", variant, "db").service.as_ref();
        service
            .expect("a database")
            .p99_ms
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min)
    });
    assert!(
        limited > 20.0 && limited > 3.0 * free,
        "a wait for the next period: {free} and {limited} ms"
    );
    let compared = compare::variants(&results, None).expect("two variants");
    let latency = compared.latency.expect("guests with operations");
    assert_eq!(latency.guests, ["db", "broker", "net"]);
    let db = latency.rows[0].guests[0].expect("the database");
    assert_eq!(db.judgment, Judgment::Worse);
    let by_p50 = by_latency(&results, Latency::P50);
    assert_eq!(by_p50.cases.len(), 2 * 3);
    assert!(
        by_p50
            .cases
            .iter()
            .all(|case| case.unit == "ms" && case.better == "lower")
    );
    let compared = compare::variants(&by_p50, None).expect("two variants");
    assert_eq!(compared.latency, None, "the metric is a time already");
}

#[test]
fn too_few_operations_are_doubted() {
    let few = MIXED.replace("netperf.transactions = 150000", "netperf.transactions = 25000");
    let results = run(
        &few,
        &Options {
            seeds: Some(1),
            ..Options::default()
        },
    );
    let doubts = doubts(&results);
    let expected = "2 of 6 cells have fewer than 100 operations, too few for a 99th percentile: default / as it is / net \
                    had 50.";
    assert!(doubts.iter().any(|doubt| doubt.starts_with(expected)), "{doubts:?}");
}

#[test]
fn a_metric_of_each_guest_takes_no_unit_and_no_published_figure() {
    for (key, line) in [("unit", "unit = \"transactions/s\""), ("better", "better = \"lower\"")] {
        let text = MIXED.replacen("seeds = 3", line, 1);
        let problems = Experiment::parse("own.toml", &text).expect_err(key).to_string();
        assert!(
            problems.contains(&format!("{key}: found ")) && problems.contains("each workload has its own"),
            "{problems}"
        );
    }
    let published = "[[published]]\ncase = \"default\"\nvariant = \"as it is\"\nvm = \"db\"\nmean = 1.0\nunit = \"s\"\nsource = \"x\"\n";
    let problems = Experiment::parse("own.toml", &format!("{MIXED}{published}")).expect_err("a figure");
    assert!(problems.to_string().contains("metric of their own"), "{problems}");
}
