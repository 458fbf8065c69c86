//! Listing, showing and copying of shipped files.

use std::fs;

use crate::command::{holdfast, holdfast_in, scratch};

#[test]
fn what_is_listed_can_be_shown() {
    let list = holdfast(&["list", "--format", "json"]).json();
    let names = |kind: &str| -> Vec<String> {
        let entries = list[kind].as_array().expect("a list");
        entries
            .iter()
            .map(|entry| entry["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(
        names("experiments"),
        [
            "kernbench-overcommit",
            "pgbench-overhead",
            "aim7-qspinlock",
            "amqp-directed-yield",
            "boot-64",
            "cgroup-imbalance",
            "lock-crossover",
            "directed-yield-grid",
            "kernel-build-contention",
            "avic-hackbench",
            "avic-tar",
            "avic-netperf",
            "ipi-bench",
            "ebizzy-tlb",
            "ebizzy-wait-early",
            "linux-pvspin",
            "linux-hackbench",
            "live-migration",
            "dbench-overcommit",
            "nested-kernbench",
            "who-should-wait"
        ]
    );
    assert_eq!(
        names("machines"),
        [
            "xeon-x5570",
            "nehalem-ex",
            "westmere-ex-8",
            "broadwell-2x14",
            "carrizo-4",
            "epyc-rome",
            "generic-x86",
            "xeon-2x16"
        ]
    );
    let table = holdfast(&["list"]);
    for name in names("experiments").into_iter().chain(names("machines")) {
        assert!(table.out.contains(&name));
        let shown = holdfast(&["show", &name]);
        assert_eq!((shown.status, shown.err.as_str()), (0, ""));
        assert!(shown.out.contains(&format!("name = \"{name}\"")));
    }
}

#[test]
fn a_shown_experiment_is_a_valid_file() {
    let folder = scratch();
    let text = holdfast(&["show", "kernbench-overcommit"]).out;
    fs::write(folder.path().join("copy.toml"), text).expect("writable");
    // Only the case is refused, since everything before it is valid.
    let ran = holdfast_in(folder.path(), &["run", "copy.toml", "--case", "none"]);
    assert_eq!(ran.err, "error: --case: found \"none\", expected one of 1x, 2x, 3x\n");
}

#[test]
fn keys_can_be_searched() {
    let all = holdfast(&["keys"]).out;
    let some = holdfast(&["keys", "halt_poll"]).out;
    assert!(all.contains("vm.*.lock = ") && all.contains("machine.costs.pause"));
    assert!(some.contains("host.halt_poll_grow = 2") && !some.contains("vm.*.lock"));
}

#[test]
fn the_version_names_its_commit() {
    let version = holdfast(&["--version"]);
    assert_eq!(version.status, 0);
    assert!(
        version.out.starts_with(concat!("holdfast ", env!("CARGO_PKG_VERSION"))),
        "{}",
        version.out
    );
}
