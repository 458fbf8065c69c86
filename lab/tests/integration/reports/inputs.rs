//! Further inputs of users: limits that nothing takes, keys that are gone, steal across migrations, writes during them.

use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;

use super::{case, run, whole};

/// Returns what is wrong with `text` under `options`.
fn problems(text: &str, options: &Options) -> Option<String> {
    let experiment = Experiment::parse("input.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    Plan::new(experiment, options)
        .err()
        .map(|problems| problems.to_string())
}

/// A guest in the host's root group.
const ROOT_GROUP: &str = r#"
name = "ignored-quota"
title = "a guest in the root group and in its own"
metric = "elapsed"
seeds = 1
scale = 0.01
[machine]
profile = "generic-x86"
sockets = 1
cores = 2
threads = 1
[[vm]]
name = "db"
vcpus = 2
workload = "kernbench"
kernbench.jobs = 4
"#;

#[test]
fn limits_that_no_group_takes_are_refused_however_they_are_set() {
    let (plain, one) = (Options::default(), |set: &str| Options {
        set: vec![set.to_owned()],
        ..Options::default()
    });
    assert_eq!(problems(ROOT_GROUP, &plain), None);
    for (key, value) in [("quota", "\"10 ms\""), ("shares", "2"), ("vcpu_quota", "\"5 ms\"")] {
        let named = [format!("vm.db.{key}"), format!("vm.*.{key}"), format!("guest.{key}")];
        for name in &named {
            let sweep = Options {
                sweep: vec![format!("{name}={value}")],
                ..Options::default()
            };
            let layer = |kind: &str| format!("{ROOT_GROUP}[[{kind}]]\nname = \"x\"\nset = {{ {name:?} = {value} }}\n");
            let own = format!("{ROOT_GROUP}{key} = {value}\n");
            for (way, found) in [
                ("--set", problems(ROOT_GROUP, &one(&format!("{name}={value}")))),
                ("--sweep", problems(ROOT_GROUP, &sweep)),
                ("case", problems(&layer("cases"), &plain)),
                ("variant", problems(&layer("variants"), &plain)),
                ("its own table", problems(&own, &plain)),
            ] {
                let found = found.unwrap_or_else(|| panic!("{name} by {way} is dropped without a word"));
                assert!(found.contains("cgroup"), "{name} by {way}: {found}");
            }
        }
    }
    let own = format!("{ROOT_GROUP}cgroup = \"own-with-vcpu-groups\"\nquota = \"10 ms\"\nvcpu_quota = \"5 ms\"\n");
    assert_eq!(problems(&own, &plain), None);
}

/// A guest that is migrated live while its kernel starts.
const AT_BOOT: &str = r#"
name = "boot-migration"
title = "a guest boots and is migrated live: is every interrupt delivered once?"
metric = "elapsed"
seeds = 1
scale = 0.01
limit = "20 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 1
threads = 1
[host]
migration.downtime = "1 ms"
migration.every = "1 ms"
[[vm]]
name = "web"
vcpus = 1
workload = "contend"
contend.calls = 100
[[cases]]
name = "same-host"
[[cases]]
name = "to-apicv"
set = { "host.migration.to.apicv" = true }
[[cases]]
name = "apicv-both"
set = { "host.apicv" = true }
[[cases]]
name = "never"
set = { "host.migration.every" = "auto" }
"#;

#[test]
fn a_guest_that_is_migrated_at_boot_passes_the_audit_and_its_pit_is_gone() {
    let results = whole(AT_BOOT);
    for name in ["same-host", "to-apicv", "apicv-both"] {
        let web = case(&results, name, "default", "web");
        assert!(web.counters["migrations"] >= 1.0, "{name}: {:?}", web.counters);
    }
    let timer = Options {
        set: vec!["vm.web.boot_timer=pit".to_owned()],
        ..Options::default()
    };
    let refused = problems(AT_BOOT, &timer).expect("no guest has a PIT");
    assert!(refused.contains("the PIT itself is not simulated"), "{refused}");
}

/// A guest next to hogs, migrated or not.
const STOLEN: &str = r#"
name = "steal-migration"
title = "steal time of a guest next to hogs, migrated every 20 ms"
metric = "elapsed"
seeds = 1
scale = 0.003
limit = "2000 s"
[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1
[host]
scheduler = "eevdf-6.12"
migration.downtime = "4 ms"
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
name = "never"
[[cases]]
name = "often"
set = { "host.migration.every" = "20 ms" }
"#;

#[test]
fn steal_counts_across_migrations() {
    let results = whole(STOLEN);
    for name in ["never", "often"] {
        let web = case(&results, name, "default", "web");
        let figures = web.operators.as_ref().expect("a simulated guest");
        let steal = figures.steal_percent.expect("a record");
        assert!(
            steal > 1.0 && steal <= figures.ready_percent + 0.1,
            "{name}: {figures:?}"
        );
    }
}

/// A guest that writes to its memory faster than its workload does, while it is copied.
const WRITING: &str = r#"
name = "writing"
title = "a guest whose memory is copied while it writes"
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
migration.downtime = "1 ms"
migration.bandwidth = 100
[[vm]]
name = "writer"
vcpus = 2
memory = 100
workload = "contend"
contend.think = "100 us"
contend.span = "1 s"
[[variants]]
name = "as the workload"
[[variants]]
name = "50MiB"
set = { "vm.writer.dirty_rate" = 50 }
"#;

#[test]
fn pages_of_a_dirty_rate_are_faults_of_the_guest() {
    let results = run(WRITING, &Options::default());
    let [quiet, writing] = ["as the workload", "50MiB"].map(|variant| case(&results, "default", variant, "writer"));
    let faults = |case: &holdfast_lab::results::Case| {
        let exits = &case.operators.as_ref().expect("a simulated guest").exits_per_second;
        exits.get("nested_fault").copied().unwrap_or(0.0)
    };
    // 50 MiB/s are 12 800 pages per second, each of which is logged once in a round. The log exits when it has 512
    // pages. The guest computes most of the time.
    let more = (faults(writing) - faults(quiet)) * 512.0;
    assert!((6_400.0..=13_000.0).contains(&more), "{more} more pages per second");
    let lost = |case: &holdfast_lab::results::Case| case.lost_time["exit_nested_fault"];
    assert!(lost(writing) > lost(quiet), "{} and {}", lost(writing), lost(quiet));
}
