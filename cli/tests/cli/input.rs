//! Bad usage and bad input: the exit status is 2, and a message says what to change.

use std::fs;

use crate::command::{holdfast, holdfast_in, scratch};

/// A valid experiment, for inputs that change it.
pub const EXPERIMENT: &str = r#"name = "mine"
title = "one guest"
metric = "elapsed"

[[vm]]
name = "build"
workload = "kernbench"
vcpus = 4
"#;

/// Runs an experiment file with `from` replaced by `to`. Returns the messages.
fn complaint(from: &str, to: &str) -> String {
    let folder = scratch();
    let text = EXPERIMENT.replacen(from, to, 1);
    assert_ne!(text, EXPERIMENT, "{from:?} is in the text");
    fs::write(folder.path().join("mine.toml"), text).expect("writable");
    let ran = holdfast_in(folder.path(), &["run", "mine.toml"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{}", ran.err);
    ran.err
}

#[test]
fn a_bad_experiment_is_located() {
    for (from, to, expected) in [
        (
            "vcpus = 4",
            "vcpus = 0",
            "error: mine.toml:8: vm.0.vcpus: found 0, expected a whole number from 1 to 1048576",
        ),
        (
            "vcpus = 4",
            "vcpus = \"four\"",
            "mine.toml:8: vm.0.vcpus: found \"four\", expected a whole number",
        ),
        (
            "vcpus = 4",
            "affinity = \"0-99\"",
            "mine.toml:8: vm.build.affinity: found pCPU 64 and 35 more, expected pCPUs from 0 to 63",
        ),
        (
            "vcpus",
            "vcpu",
            "mine.toml:8: vm.0.vcpu: found an unknown key, expected a known key; did you mean `vm.*.vcpus`?",
        ),
        (
            "\"kernbench\"",
            "\"kernbenhc\"",
            "mine.toml:7: vm.0.workload: found \"kernbenhc\", expected one of ",
        ),
        (
            "\"elapsed\"",
            "\"throughput\"",
            "mine.toml:7: vm.build.workload: found a workload without operations to count",
        ),
        ("metric", "matric", "mine.toml:3: matric: found an unknown key"),
        ("\"mine\"", "\"mine", "mine.toml:1: found "),
        (
            "[[vm]]",
            "[[cases]]",
            "mine.toml:1: vm: found nothing, expected at least one guest, as [[vm]]",
        ),
    ] {
        let message = complaint(from, to);
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn a_bad_task_group_is_located() {
    for (group, expected) in [
        (
            "shares = 0",
            "error: mine.toml:7: group.0.shares: found 0, expected a whole number from 2 to 262144",
        ),
        (
            "parent = \"a\"",
            "mine.toml:7: group.a.parent: found a cycle: a below a, expected a group that is not below this one",
        ),
        ("parent = \"b\"", "mine.toml:7: group.a.parent: found \"b\", expected "),
        (
            "quota = \"0.5 ms\"",
            "mine.toml:7: group.a.quota: found 500 us, expected 1 ms to 6400 ms",
        ),
        (
            "quota = \"6401 ms\"",
            "mine.toml:7: group.a.quota: found 6401 ms, expected 1 ms to 6400 ms",
        ),
        (
            "quota = \"2 ms\"\nperiod = \"2 s\"",
            "mine.toml:8: group.a.period: found 2 s, expected a period of 1 ms to 1 s",
        ),
        (
            "quota = \"2 ms\"\n[host]\nscheduler = \"cfs-2.6.37\"",
            "mine.toml:7: group.a.quota: found 2 ms, expected no quota with host.scheduler = \"cfs-2.6.37\"",
        ),
    ] {
        let message = complaint("[[vm]]", &format!("[[group]]\nname = \"a\"\n{group}\n\n[[vm]]"));
        assert!(message.contains(expected), "{group}: {message}");
    }
    let deep = |level: u32| match level {
        0 => "[[group]]\nname = \"g0\"\n".to_owned(),
        _ => format!("[[group]]\nname = \"g{level}\"\nparent = \"g{}\"\n", level - 1),
    };
    let groups: String = (0..33).map(deep).collect();
    let message = complaint("[[vm]]", &format!("{groups}[[vm]]"));
    let expected = "group.g32.parent: found 33 levels of task groups, expected at most 32 levels";
    assert!(message.contains(expected), "{message}");
    let message = complaint("vcpus = 4", "quota = \"10 ms\"");
    assert!(
        message.contains("mine.toml:8: vm.0.quota: found a key that does not apply here"),
        "{message}"
    );
}

#[test]
fn a_bad_pause_window_is_located() {
    for (keys, expected) in [
        (
            "[machine]\nple_gap = \"0 cycles\"",
            "mine.toml:11: machine.ple_gap: found 0 cycles, expected 1 to 4294967294 cycles of the machine's clock",
        ),
        (
            "[machine]\nple_window = \"128 cycles\"",
            "mine.toml:11: machine.ple_window: found 128 cycles, expected more than the gap (128 cycles), up to 4294967295 cycles",
        ),
        (
            "[machine]\nple_gap = \"5000 cycles\"",
            "mine.toml:11: machine.ple_gap: found 5000 cycles, expected less than the window (4096 cycles)",
        ),
        (
            "[machine]\npause_filter_count = 3000",
            "mine.toml:11: machine.pause_filter_count: found a key that does not apply here, expected an AMD CPU",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\npause_filter_count = 65536",
            "mine.toml:12: machine.pause_filter_count: found 65536, expected a whole number from 1 to 65535",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\npause_filter_threshold = \"65536 cycles\"",
            "mine.toml:12: machine.pause_filter_threshold: found 65536 cycles, expected 0 to 65535 cycles",
        ),
        (
            "[host.pause_window]\ngrow = 1",
            "mine.toml:11: host.pause_window.grow: found 1, expected 0, or 2 and more",
        ),
        (
            "[host.pause_window]\nmax = 4095",
            "mine.toml:11: host.pause_window.max: found 4095, expected 4096 (the window that it starts from) to 4294967295",
        ),
    ] {
        let message = complaint("vcpus = 4\n", &format!("vcpus = 4\n\n{keys}\n"));
        assert!(message.contains(expected), "{keys}: {message}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let message = complaint("vcpus = 4", "vcpus = 0\nlock = \"x\"\nhz = 0");
    assert_eq!(message.lines().count(), 3, "{message}");
}

#[test]
fn bad_usage_is_told() {
    for (arguments, expected) in [
        (
            &["run", "kernbench-overcomit"][..],
            "found \"kernbench-overcomit\", expected a TOML file, or one of kernbench-overcommit",
        ),
        (
            &["run", "kernbench-overcomit"],
            "did you mean \"kernbench-overcommit\"?",
        ),
        (&["run", ""], "found \"\", expected a TOML file, or one of "),
        (&["run", "."], ".: cannot read it: Is a directory"),
        (&["run", "/dev/zero"], "/dev/zero: cannot read it: it is no text"),
        (&["run", "missing.toml"], "missing.toml: cannot read it"),
        (
            &["run", "--case", "4x"],
            "--case: found \"4x\", expected one of 1x, 2x, 3x",
        ),
        (
            &["run", "--variant", "qspin"],
            "--variant: found \"qspin\", expected one of ticket, pv-ticket",
        ),
        (&["run", "--seeds", "0"], "--seeds"),
        (&["run", "--jobs", "0"], "--jobs"),
        (
            &["run", "--scale", "2"],
            "--scale: found 2, expected a number above 0, up to 1",
        ),
        (
            &["run", "--scale", "-1"],
            "--scale: found -1, expected a number above 0, up to 1",
        ),
        (
            &["run", "--scale", "nan"],
            "--scale: found NaN, expected a number above 0, up to 1",
        ),
        (
            &["run", "--set", "vm.build.vcpus=9999999"],
            "--set vm.build.vcpus=9999999: vm.build.vcpus: found 9999999",
        ),
        (
            &["run", "--first-seed", "18446744073709551615"],
            "--first-seed: found 18446744073709551615, expected",
        ),
        (
            &["run", "--sweep", "host.hz"],
            "--sweep host.hz: found \"host.hz\", expected key=value,value",
        ),
        (
            &["run", "--set", "host.hz=100", "--sweep", "nonsense=1"],
            "nonsense: found an unknown key",
        ),
        (&["run", "--frobnicate"], "--frobnicate"),
        (&["frobnicate"], "frobnicate"),
        (
            &["show", "nothing"],
            "found \"nothing\", expected one of kernbench-overcommit",
        ),
        (
            &["validate", "generic-x86"],
            "found \"generic-x86\", expected one of kernbench-overcommit",
        ),
        (
            &["validate", "boot-64"],
            "found \"boot-64\", expected an experiment with published figures; `holdfast run boot-64` predicts",
        ),
        (
            &["keys", "no such key"],
            "found \"no such key\", expected a part of a key",
        ),
        (
            &["keys", "hz", "--format", "markdown"],
            "found a pattern, expected it only with --format table",
        ),
        (&["compare", "missing.json"], "missing.json: cannot read it"),
        (
            &["explain", "nothing"],
            "found \"nothing\", expected a TOML file, or one of",
        ),
        (&["explain", "missing.json"], "missing.json: cannot read it"),
        (&["explain", "."], ".: cannot read it: Is a directory"),
        (&[], "Usage"),
    ] {
        let ran = holdfast(arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_machine_file_is_found_beside_its_experiment() {
    let folder = scratch();
    let below = folder.path().join("below");
    fs::create_dir(&below).expect("writable");
    let machine = holdfast(&["show", "generic-x86"]).out.replacen("gap = {", "gop = {", 1);
    fs::write(below.join("box.toml"), machine).expect("writable");
    fs::write(
        below.join("mine.toml"),
        EXPERIMENT.to_owned() + "[machine]\nprofile = \"box.toml\"\n",
    )
    .expect("writable");
    let ran = holdfast_in(folder.path(), &["run", "below/mine.toml"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.err.contains("box.toml:") && ran.err.contains("ple.gop: found an unknown key"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("ple.gap: found nothing, expected a cost"),
        "{}",
        ran.err
    );
}
