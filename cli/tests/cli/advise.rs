//! `holdfast advise` and `holdfast capacity`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{Ran, holdfast, holdfast_in, scratch};
use crate::import::taking_turns;

/// A recording without processes, as trace-cmd writes it.
const TRACE_CMD: &str = "../recordings/tests/files/6.1-trace-cmd.txt";

/// A recording of a host without guests.
const NO_VCPU: &str = " a 1/1 [000] 1.0: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=R ==> \
                       next_comm=b next_pid=2 next_prio=120\n";

fn ran(folder: &Path, turns: (u64, u64), arguments: &[&str]) -> Ran {
    fs::write(folder.join("trace.txt"), taking_turns(turns.0, turns.1)).expect("a new file");
    holdfast_in(folder, &[arguments, &["--quiet"]].concat())
}

#[test]
fn advice_fits_a_screen_and_begins_with_the_check() {
    let folder = scratch();
    let ran = ran(folder.path(), (4000, 4000), &["advise", "trace.txt"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let out = &ran.out;
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    assert!(out.lines().count() <= 40, "{out}");
    let order = [
        "50 % of the wanted CPU time",
        "The replay gives the recorded waits back.",
        "1. Move vm",
        "   do ",
        "   undo ",
        "The knee: 4 such vCPUs need 4 pCPUs",
    ];
    let place = |words: &&str| {
        out.find(words)
            .unwrap_or_else(|| panic!("{words:?} is missing in {out}"))
    };
    let places: Vec<usize> = order.iter().map(place).collect();
    assert!(places.is_sorted(), "{out}");
    let text = out.replace('\n', " ");
    assert!(text.contains("2 pCPUs are enough for about 2 of them."), "{out}");
}

#[test]
fn each_advice_has_its_worth_its_costs_and_the_way_back() {
    let folder = scratch();
    let ran = ran(
        folder.path(),
        (4000, 4000),
        &["advise", "trace.txt", "--seeds", "2", "--format", "json"],
    );
    let advice = ran.json();
    assert_eq!(advice["schema"], "holdfast.advice/2");
    assert_eq!(advice["knee"]["fits"], 2);
    let all = advice["advice"].as_array().expect("a list");
    let measured: Vec<&Value> = all.iter().filter(|advice| !advice["gain"].is_null()).collect();
    assert!(!measured.is_empty(), "{advice}");
    for one in all {
        for text in ["rule", "remedy", "seen", "apply", "undo"] {
            assert!(
                one[text].as_str().is_some_and(|text| !text.is_empty()),
                "{text} of {one}"
            );
        }
    }
    // Each VM had half of what it wanted, so moving one saves all waits of the other.
    let saved = &measured[0]["gain"]["saved_ms_per_20s"];
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!((19_000.0..21_000.0).contains(&number(&saved["mean"])), "{saved}");
    assert!(number(&saved["min"]) <= number(&saved["mean"]) && number(&saved["mean"]) <= number(&saved["max"]));
}

#[test]
fn a_replay_that_does_not_give_the_recording_back_measures_nothing() {
    let folder = scratch();
    // No scheduler of a simulated host gives equal threads a quarter and three quarters.
    let unlike = ran(folder.path(), (3000, 1000), &["advise", "trace.txt"]);
    assert_eq!(unlike.status, 0, "{}", unlike.err);
    assert!(
        unlike.out.contains("The replay does NOT give the recorded waits back"),
        "{}",
        unlike.out
    );
    assert!(
        unlike.out.contains("not measured") && !unlike.out.contains("The knee"),
        "{}",
        unlike.out
    );
    // Without processes there is no replay at all.
    let without = holdfast(&["advise", TRACE_CMD, "--quiet"]);
    assert_eq!(without.status, 0, "{}", without.err);
    let text = without.out.replace('\n', " ");
    assert!(
        text.contains("No replay: ") && text.contains("Nothing below is measured."),
        "{text}"
    );
}

#[test]
fn a_host_without_guests_needs_no_advice() {
    let folder = scratch();
    fs::write(folder.path().join("host.txt"), NO_VCPU).expect("a new file");
    let ran = holdfast_in(folder.path(), &["advise", "host.txt", "--quiet"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.out.starts_with("No vCPU was found"), "{}", ran.out);
    assert!(
        ran.out.contains("No replay: host.txt: no vCPU in it. Nothing below"),
        "{}",
        ran.out
    );
}

#[test]
fn as_many_copies_fit_as_there_are_pcpus_for_their_vcpus() {
    let folder = scratch();
    let recorded = ran(
        folder.path(),
        (4000, 4000),
        &["capacity", "trace.txt", "--vm", "vm 5000"],
    );
    assert_eq!(recorded.status, 0, "{}", recorded.err);
    let first = recorded.out.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("1 copy of vm-5000 fits: ready for at most 5 %"),
        "{}",
        recorded.out
    );
    // The same kind of VM, described: a pCPU for each of its vCPUs.
    let text = "name = \"mine\"\ntitle = \"mine\"\nmetric = \"elapsed\"\nseeds = 2\n[machine]\nsockets = 1\ncores = 6\n\
                threads = 1\n[[vm]]\nname = \"web\"\nvcpus = 2\nworkload = \"kernbench\"\n";
    fs::write(folder.path().join("mine.toml"), text).expect("a new file");
    let arguments = [
        "capacity",
        "mine.toml",
        "--scale",
        "0.002",
        "--format",
        "json",
        "--quiet",
    ];
    let described = holdfast_in(folder.path(), &arguments).json();
    let fits = described["fits"].as_u64().expect("a number");
    assert!((3..=4).contains(&fits), "{described}");
    let curve = described["curve"].as_array().expect("a list");
    let ready: Vec<f64> = curve
        .iter()
        .filter_map(|point| point["ready_percent"]["mean"].as_f64())
        .collect();
    // A few interrupts more or less are no curve.
    let rises = ready.is_sorted_by(|fewer, more| *fewer < more + 0.1);
    assert!(ready.len() == curve.len() && rises, "{described}");
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let folder = scratch();
    fs::write(folder.path().join("trace.txt"), taking_turns(4000, 4000)).expect("a new file");
    fs::write(folder.path().join("empty"), "").expect("a new file");
    fs::write(folder.path().join("host.txt"), NO_VCPU).expect("a new file");
    for (arguments, why) in [
        (
            &["advise", "empty"][..],
            "empty: at byte 0: not a recording that can be read",
        ),
        (&["advise", "missing"], "missing: cannot read it"),
        (&["capacity", "missing"], "missing: cannot read it"),
        (&["capacity", "missing.toml"], "missing.toml: cannot read it"),
        (
            &["capacity", "trace.txt"],
            "found no --vm, expected one of vm 4000, vm 5000",
        ),
        (
            &["capacity", "trace.txt", "--vm", "web"],
            "found \"web\", expected one of",
        ),
        (&["capacity", "host.txt", "--vm", "web"], "host.txt: no vCPU in it"),
        (
            &["capacity", "kernbench-overcommit", "--vm", "biuld"],
            "found \"biuld\", expected",
        ),
        (
            &[
                "capacity",
                "kernbench-overcommit",
                "--vm",
                "build",
                "--scale",
                "0.001",
                "--p99",
                "5ms",
            ],
            "found --p99 for build, which counts none, expected a VM whose workload counts operations, or --ready",
        ),
        (
            &["capacity", "boot-64", "trace.txt"],
            "found trace.txt, expected one experiment",
        ),
    ] {
        let ran = holdfast_in(folder.path(), &[arguments, &["--quiet"]].concat());
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        // Warnings say what the recording lacks.
        let error = ran.err.lines().find_map(|line| line.strip_prefix("error: "));
        assert!(
            error.is_some_and(|error| error.starts_with(why)),
            "{arguments:?}: {}",
            ran.err
        );
    }
}
