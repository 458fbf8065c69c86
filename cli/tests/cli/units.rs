//! Units of a plan: shards, caches, merging, in several processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{Ran, Running, holdfast_in};

/// Four cells with two seeds: eight short runs.
const SWEEP: &[&str] = &[
    "kernbench-overcommit",
    "--seeds",
    "2",
    "--scale",
    "0.001",
    "--case",
    "1x",
    "--sweep",
    "guest.spin_threshold=1024,2048",
    "--jobs",
    "1",
];

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, SWEEP, more].concat()
}

/// Runs a command that succeeds.
fn done(folder: &Path, arguments: &[&str]) -> Ran {
    let ran = holdfast_in(folder, arguments);
    assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.err);
    ran
}

/// The bytes that one run prints.
fn one_run(folder: &Path) -> String {
    done(folder, &with(&["run"], &["--format", "json"])).out
}

/// The files in `folder` and below it, without the folders themselves.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let mut all: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect();
    all.sort();
    all
}

#[test]
fn seven_shards_merge_to_the_bytes_of_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    for shard in 1..=7 {
        let shard = format!("{shard}/7");
        done(folder.path(), &with(&["run"], &["--shard", &shard, "--out", "parts"]));
    }
    let parts = files(&folder.path().join("parts"));
    assert_eq!(parts.len(), 7);
    let names: Vec<&str> = parts.iter().rev().map(|path| path.to_str().expect("UTF-8")).collect();
    let merged = done(
        folder.path(),
        &[&["merge", "--format", "json", "--out", "whole"], &names[..]].concat(),
    );
    assert_eq!(merged.out, one_run(folder.path()));
    let written = folder.path().join("whole/kernbench-overcommit.results.json");
    assert_eq!(fs::read_to_string(written).expect("written"), merged.out);

    // Without one of them the merge says which runs are missing, and how to run them.
    let some = [&["merge", "--missing", "rest.jsonl", "--format", "json"], &names[1..]].concat();
    let ran = holdfast_in(folder.path(), &some);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("of 8 units have no record: case 1x "), "{}", ran.err);
    assert!(ran.out.contains("\"complete\": false"));
    let rest = done(folder.path(), &["run", "--units", "rest.jsonl"]);
    fs::write(folder.path().join("rest.records.jsonl"), rest.out).expect("writable");
    let again = [&["merge", "rest.records.jsonl", "--format", "json"], &names[1..]].concat();
    assert_eq!(done(folder.path(), &again).out, merged.out);
}

#[test]
fn units_from_standard_input_give_records_on_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = done(folder.path(), &with(&["plan"], &["--format", "jsonl"])).out;
    let lines: Vec<&str> = plan.lines().collect();
    assert_eq!(lines.len(), 9, "the plan, and eight units");
    let unit: serde_json::Value = serde_json::from_str(lines[1]).expect("JSON");
    assert_eq!(unit["parameters"]["host.hz"], 1000);
    fs::write(
        folder.path().join("some.jsonl"),
        [lines[0], lines[8], lines[3]].join("\n"),
    )
    .expect("writable");
    let script = "\"$0\" run --units - --jobs 1 < some.jsonl";
    let mut command = Command::new("sh");
    command
        .current_dir(folder.path())
        .args(["-c", script, env!("CARGO_BIN_EXE_holdfast")]);
    let ran = Ran::of(command.output().expect("sh is there"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    let records: Vec<serde_json::Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records.len(), 3);
    assert_eq!(records[0]["schema"], "holdfast.plan/1");
    assert_eq!(records[2]["id"], unit_id(lines[3]));
    assert!(records[1]["cost"]["wall_s"].as_f64().expect("a number") > 0.0);
    assert_eq!(
        records[1]["parameters"],
        serde_json::from_str::<serde_json::Value>(lines[8]).expect("JSON")["parameters"]
    );
}

fn unit_id(line: &str) -> serde_json::Value {
    serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].clone()
}

#[test]
fn a_killed_shard_resumes_with_the_same_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let shard = |seeds: &str| -> Vec<String> {
        let words = [
            "run", "--seeds", seeds, "--scale", "0.001", "--case", "1x", "--jobs", "1", "--shard", "1/2", "--out", ".",
        ];
        words.map(str::to_owned).to_vec()
    };
    // Far more work than is done before the signal.
    let killed = shard("20");
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let running = Running::new(command.current_dir(folder.path()).args(&killed));
    let file = folder.path().join("kernbench-overcommit.1-of-2.records.jsonl");
    let lines = || fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    let begun = Instant::now();
    while lines() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no record is written");
        std::thread::sleep(Duration::from_millis(2));
    }
    running.kill();
    let kept = fs::read_to_string(&file).expect("records");
    let before = kept.lines().count() - 1;
    assert!(before >= 2);
    // As if the process had been killed in the middle of a line.
    let cut = kept.trim_end().len() - 40;
    fs::write(&file, &kept[..cut]).expect("writable");
    let ran = holdfast_in(folder.path(), &killed);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.err.contains(&format!("has {} records", before - 1)), "{}", ran.err);
    assert!(
        ran.err
            .contains(&format!("records.jsonl:{}: found a truncated record", before + 1)),
        "{}",
        ran.err
    );
    let resumed = fs::read_to_string(&file).expect("records");
    assert!(
        resumed.starts_with(&kept[..kept[..cut].rfind('\n').expect("lines")]),
        "what was sound is kept"
    );
    assert_eq!(resumed.lines().count(), 21, "the plan, and half of the 40 units");
}

#[test]
fn two_writers_share_a_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        Running::new(
            command
                .current_dir(folder.path())
                .args(with(&["run"], &["--format", "json", "--cache", "shared"])),
        )
    };
    let both = [start(), start()].map(|running| running.end().0);
    let expected = one_run(folder.path());
    for ran in &both {
        assert_eq!((ran.status, ran.out.as_str()), (0, expected.as_str()), "{}", ran.err);
    }
    let kept = files(&folder.path().join("shared"));
    assert_eq!(kept.len(), 8, "one file for each unit, and nothing else: {kept:?}");

    // A third one runs nothing. A damaged record is run again.
    let third = done(
        folder.path(),
        &with(&["run"], &["--format", "json", "--cache", "shared"]),
    );
    assert_eq!(third.out, expected);
    assert!(third.err.contains("0 units run, 8 from the cache"), "{}", third.err);
    fs::write(&kept[2], "{").expect("writable");
    let healed = done(
        folder.path(),
        &with(&["run"], &["--format", "json", "--cache", "shared"]),
    );
    assert_eq!(healed.out, expected);
    assert!(
        healed
            .err
            .contains("found a truncated record, expected a whole record; its unit is run again")
    );
    assert!(healed.err.contains("1 units run, 7 from the cache"), "{}", healed.err);

    let plan = done(
        folder.path(),
        &with(&["plan"], &["--format", "jsonl", "--cache", "shared"]),
    )
    .out;
    assert_eq!(plan.matches("\"cached\":true").count(), 8);
    assert!(!plan.contains("\"predicted_s\":null"));
    fs::write(folder.path().join("plan.jsonl"), plan).expect("writable");
    assert_eq!(
        done(folder.path(), &["merge", "plan.jsonl", "shared", "--format", "json"]).out,
        expected
    );
}

#[test]
fn an_interrupted_sweep_resumes_from_its_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = [
        "run", "--seeds", "10", "--scale", "0.001", "--case", "1x", "--jobs", "1", "--cache", "kept", "--format",
        "json",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let running = Running::new(command.current_dir(folder.path()).args(sweep));
    let kept = folder.path().join("kept");
    let begun = Instant::now();
    while !kept.is_dir() || files(&kept).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no record is written");
        std::thread::sleep(Duration::from_millis(2));
    }
    running.send("TERM");
    let (ran, _) = running.end();
    assert_eq!(ran.status, 143, "{}", ran.err);
    let before = files(&kept).len();
    assert!(before < 20);
    let again = done(folder.path(), &sweep);
    assert!(
        again
            .err
            .contains(&format!("{} units run, {before} from the cache", 20 - before)),
        "{}",
        again.err
    );
    let without: Vec<&str> = sweep
        .into_iter()
        .filter(|word| !["--cache", "kept"].contains(word))
        .collect();
    assert_eq!(again.out, done(folder.path(), &without).out);
}

#[test]
fn added_seeds_come_from_the_cache_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = [
        "run",
        "--scale",
        "0.001",
        "--case",
        "1x",
        "--format",
        "json",
        "--until-ci",
        "4%",
        "--seeds-max",
        "8",
    ];
    let plain = done(folder.path(), &run);
    let cached = [&run[..], &["--cache", "kept"]].concat();
    assert_eq!(done(folder.path(), &cached).out, plain.out);
    let again = done(folder.path(), &cached);
    assert!(again.err.contains("0 units run"), "{}", again.err);
    assert_eq!(again.out, plain.out);
    let results: serde_json::Value = serde_json::from_str(&plain.out).expect("JSON");
    assert_eq!(results["complete"], true);
}

#[test]
fn misuse_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = done(folder.path(), &with(&["plan"], &["--format", "jsonl"])).out;
    fs::write(folder.path().join("plan.jsonl"), &plan).expect("writable");
    let foreign = plan.replacen("\"build\":\"", "\"build\":\"f", 1);
    fs::write(folder.path().join("foreign.jsonl"), foreign).expect("writable");
    let cases: &[(&[&str], &str)] = &[
        (&["run", "--shard", "3/2"], "expected K/N"),
        (&["run", "--until-ci", "5"], "expected a percentage"),
        (&["run", "--until-ci", "5%", "--shard", "1/2"], "found --until-ci"),
        (
            &["run", "--until-ci", "5%", "--check-determinism"],
            "found --check-determinism",
        ),
        (&["run", "--shard", "0/2"], "expected K/N"),
        (&["run", "boot-64", "--units", "plan.jsonl"], "cannot be used with"),
        (&["run", "--units", "plan.jsonl", "--seeds", "3"], "--units has its own"),
        (
            &["run", "--units", "plan.jsonl", "--format", "json"],
            "expected it only for results",
        ),
        (
            &["run", "--units", "none.jsonl"],
            "none.jsonl: found an error (No such file",
        ),
        (&["run", "--units", "foreign.jsonl"], "found a plan of the build f"),
        (&["merge", "foreign.jsonl"], "or --mixed-builds"),
        (&["merge", "none.jsonl"], "No such file"),
        (&["merge"], "required"),
        (&["run", "--cache", "plan.jsonl"], "cannot write it"),
        (&["run", "--cache", "c", "--check-determinism"], "--check-determinism"),
        (&["run", "--shard", "1/2", "--check-determinism"], "--check-determinism"),
    ];
    for (arguments, expected) in cases {
        let ran = holdfast_in(folder.path(), arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
    // Records of another plan are not appended to.
    let shard = [
        "run", "--scale", "0.001", "--case", "1x", "--seeds", "1", "--shard", "1/2", "--out", ".",
    ];
    done(folder.path(), &shard);
    let file = folder.path().join("kernbench-overcommit.1-of-2.records.jsonl");
    let before = fs::read(&file).expect("records");
    let other: Vec<&str> = shard
        .into_iter()
        .map(|word| if word == "0.001" { "0.002" } else { word })
        .collect();
    let ran = holdfast_in(folder.path(), &other);
    assert_eq!(ran.status, 2);
    assert!(
        ran.err
            .contains("found records of another plan (kernbench-overcommit of the build"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(&file).expect("records"), before);
}
