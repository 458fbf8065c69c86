//! Time that once had no cause of its own.

use holdfast_lab::compare;
use holdfast_lab::explain::explain;
use holdfast_lab::remarks::remarks;
use holdfast_lab::results::Case;

use super::{case, whole};

/// Two vCPUs on the two threads of a core, or on two cores.
pub const SMT: &str = r#"
name = "smt-pinning"
title = "two vCPUs on one core and on two"
metric = "elapsed"
seeds = 1
scale = 0.005
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 2
numbering = "siblings-adjacent"
[[vm]]
name = "db"
vcpus = 2
workload = "kernbench"
kernbench.jobs = 4
[[cases]]
name = "one-core"
set = { "vm.db.affinity" = [[0], [1]] }
[[cases]]
name = "two-cores"
set = { "vm.db.affinity" = [[0], [2]] }
"#;

#[test]
fn time_that_the_threads_of_a_core_take_from_each_other_has_a_name() {
    let results = whole(SMT);
    let [one, two] = ["one-core", "two-cores"].map(|name| case(&results, name, "default", "db"));
    assert!(
        one.samples[0] > 1.4 * two.samples[0],
        "{} and {}",
        one.samples[0],
        two.samples[0]
    );
    let shared = |case: &Case| case.lost_time["shared_core"];
    assert!(shared(two) < 0.01, "{}", shared(two));
    // Both do the same work. What it takes longer is the other thread's doing.
    let worked = |case: &Case| case.lost_time["useful"] + case.lost_time["critical_section"];
    let work = [one, two].map(|case| worked(case) * case.samples[0]);
    assert!((work[0] / work[1] - 1.0).abs() < 0.05, "{work:?}");
    assert!(shared(one) > 0.25, "{}", shared(one));
    let remarks = remarks(&results);
    let said = "the other threads of a core slow it down for ";
    assert!(
        remarks
            .iter()
            .any(|remark| remark.starts_with(said) && remark.ends_with("one-core / default / db"))
    );
}

/// A guest whose memory is on both sockets.
const TWO_SOCKETS: &str = r#"
name = "two-sockets"
title = "a guest on two sockets"
metric = "elapsed"
seeds = 1
scale = 0.002
[machine]
profile = "generic-x86"
sockets = 2
cores = 2
threads = 1
[[vm]]
name = "db"
vcpus = 2
workload = "kernbench"
kernbench.jobs = 4
[[cases]]
name = "spread"
[[cases]]
name = "pinned"
set = { "vm.db.affinity" = "0-1" }
"#;

#[test]
fn remote_memory_has_a_name() {
    let results = whole(TWO_SOCKETS);
    let remote = |name| case(&results, name, "default", "db").lost_time["remote_memory"];
    assert!(remote("spread") > 0.01, "{}", remote("spread"));
    assert_eq!(remote("pinned"), 0.0);
}

/// A guest that an AVIC host has, with what inhibits AVIC.
const INHIBITED: &str = r#"
name = "avic-inhibited"
title = "AVIC with what inhibits it"
metric = "elapsed"
seeds = 1
scale = 0.001
[machine]
profile = "generic-x86"
cpu = "zen2"
sockets = 1
cores = 4
threads = 1
[host]
scheduler = "eevdf-6.12"
[[vm]]
name = "guest"
vcpus = 2
workload = "contend"
[[cases]]
name = "off"
[[cases]]
name = "on"
set = { "host.avic" = "on" }
[[cases]]
name = "hyperv"
set = { "host.avic" = "on", "vm.*.apic_inhibits" = ["hyperv"] }
[[cases]]
name = "sev"
set = { "host.avic" = "on", "vm.*.apic_inhibits" = ["sev", "pit_reinj"] }
"#;

#[test]
fn an_inhibited_avic_is_remarked_on() {
    let results = whole(INHIBITED);
    let remarks = remarks(&results);
    let said: Vec<&String> = remarks.iter().filter(|remark| remark.contains("inhibited")).collect();
    assert_eq!(said.len(), 2, "{remarks:?}");
    assert!(
        said[0].contains("(hyperv)") && said[0].ends_with("hyperv / default / guest"),
        "{said:?}"
    );
    assert!(
        said[1].contains("(pit_reinj, sev)") && said[1].ends_with("sev / default / guest"),
        "{said:?}"
    );
    let compared = compare::variants(&results, None).expect("a variant");
    assert!(compared.remarks.iter().any(|remark| remark.contains("(hyperv)")));
    assert!(
        explain(&results)
            .remarks
            .iter()
            .any(|remark| remark.contains("(hyperv)"))
    );
}

/// A guest that is migrated over links of different speed.
const MIGRATED: &str = r#"
name = "migrate-converge"
title = "live migration over links of different speed"
metric = "elapsed"
seeds = 1
scale = 0.005
limit = "2000 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1
[host]
scheduler = "eevdf-6.12"
migration.every = "100 ms"
migration.downtime = "30 ms"
[[vm]]
name = "build"
vcpus = 4
workload = "kernbench"
kernbench.jobs = 8
[[cases]]
name = "no-copy"
[[cases]]
name = "10MiB"
set = { "host.migration.bandwidth" = 10 }
"#;

#[test]
fn stops_for_migrations_have_a_name_and_migrations_without_an_end_a_remark() {
    let results = whole(MIGRATED);
    let [stopped, copied] = ["no-copy", "10MiB"].map(|name| case(&results, name, "default", "build"));
    assert!(stopped.counters["migrations"] >= 1.0);
    let (share, run_ns) = (stopped.lost_time["migration_stop"], stopped.lengths_ns[0] as f64);
    let stops = stopped.counters["migrations"] * 30e6 / run_ns;
    assert!(
        (share / stops - 1.0).abs() < 0.2,
        "{share} of the time, {stops} by the stops"
    );
    assert_eq!(copied.counters["migrations"], 0.0);
    let remarks = remarks(&results);
    let said = remarks
        .iter()
        .find(|remark| remark.starts_with("no live migration completes"));
    assert!(
        said.is_some_and(|remark| remark.ends_with("10MiB / default / build")),
        "{remarks:?}"
    );
}

/// A guest that writes as fast as the link of its migrations sends.
const CONVERGING: &str = r#"
name = "auto-converge"
title = "a guest that writes as fast as the link sends"
metric = "throughput"
unit = "calls/s"
seeds = 1
scale = 1
limit = "100 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 2
threads = 1
[host]
migration.every = "10 ms"
migration.downtime = "50 ms"
migration.bandwidth = 100
[[vm]]
name = "writer"
vcpus = 2
memory = 110
dirty_rate = 100
workload = "contend"
contend.think = "100 us"
contend.span = "9 s"
[[cases]]
name = "never"
[[cases]]
name = "throttled"
set = { "host.migration.auto_converge" = true }
"#;

#[test]
fn a_throttled_guest_lets_its_migration_converge() {
    let results = whole(CONVERGING);
    let [never, throttled] = ["never", "throttled"].map(|name| case(&results, name, "default", "writer"));
    assert_eq!(never.counters["migrations"], 0.0);
    assert_eq!(never.lost_time["migration_throttle"], 0.0);
    assert!(throttled.counters["migrations"] >= 1.0, "{:?}", throttled.counters);
    let most = throttled.counters["migration_throttle_percent_max"];
    assert!((20.0..=60.0).contains(&most), "{most} %");
    let slept = throttled.lost_time["migration_throttle"];
    assert!(
        slept > 0.02 && slept < most / 100.0,
        "{slept} of the time with up to {most} %"
    );
    assert!(throttled.samples[0] < never.samples[0]);
}
