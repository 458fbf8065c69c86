//! Hitches of a first hour: paths, standard input, results from earlier, quiet runs, changes that overwrite each other.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::command::{Ran, holdfast, holdfast_in, scratch};

/// The smallest run.
const SMALL: &[&str] = &[
    "run",
    "--seeds",
    "1",
    "--scale",
    "0.001",
    "--case",
    "1x",
    "--variant",
    "ticket",
];

fn small(folder: &Path, more: &[&str]) -> Ran {
    holdfast_in(folder, &[SMALL, more].concat())
}

/// Runs `holdfast ARGUMENTS` in `folder` with the file `input` of that folder as standard input.
fn with_input(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .current_dir(folder)
        .args(arguments)
        .stdin(File::open(folder.join(input)).expect("it is there"))
        .output();
    Ran::of(output.expect("the command starts"))
}

fn experiment(name: &str) -> String {
    holdfast(&["show", name]).out
}

#[test]
fn a_path_in_an_option_is_relative_to_the_working_folder() {
    let folder = scratch();
    fs::create_dir(folder.path().join("below")).expect("writable");
    fs::write(
        folder.path().join("below/mine.toml"),
        experiment("kernbench-overcommit"),
    )
    .expect("writable");
    let machine = experiment("xeon-x5570").replacen("name = \"xeon-x5570\"", "name = \"here\"", 1);
    fs::write(folder.path().join("here.toml"), machine).expect("writable");
    for target in ["kernbench-overcommit", "below/mine.toml"] {
        let ran = small(folder.path(), &[target, "--set", "machine.profile=here.toml"]);
        assert_eq!(ran.status, 0, "{target}: {}", ran.err);
        assert!(ran.out.contains("machine here,"), "{}", ran.out);
    }
}

#[test]
fn a_dash_is_standard_input() {
    let folder = scratch();
    fs::write(folder.path().join("mine.toml"), experiment("kernbench-overcommit")).expect("writable");
    let arguments = [SMALL, &["-", "--format", "json"]].concat();
    let ran = with_input(folder.path(), &arguments, "mine.toml");
    assert_eq!(ran.status, 0, "{}", ran.err);
    fs::write(folder.path().join("r.json"), &ran.out).expect("writable");
    for arguments in [
        &["explain", "-"][..],
        &["compare", "-"],
        &["compare", "-", "-"],
        &["report", "-", "--out", "x"],
    ] {
        let ran = with_input(folder.path(), arguments, "r.json");
        assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.err);
    }
    let ran = with_input(folder.path(), &["report", "-"], "r.json");
    assert_eq!(ran.status, 2);
    assert!(
        ran.err.contains("expected --out, --svg, --csv or --parquet"),
        "{}",
        ran.err
    );
    let ran = with_input(folder.path(), &["run", "-", "--case", "x"], "mine.toml");
    assert!(
        ran.err.contains("--case: found \"x\", expected one of 1x, 2x, 3x"),
        "{}",
        ran.err
    );
}

#[test]
fn earlier_results_are_kept() {
    let folder = scratch();
    let (now, earlier) = (
        "kernbench-overcommit.results.json",
        "kernbench-overcommit.results.1.json",
    );
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("it is there");
    assert_eq!(small(folder.path(), &["--out", "."]).status, 0);
    let first = read(now);
    // Equal results are not kept twice.
    assert_eq!(small(folder.path(), &["--out", "."]).status, 0);
    assert!(!folder.path().join(earlier).exists());
    let ran = small(folder.path(), &["--out", ".", "--first-seed", "2"]);
    assert!(
        ran.err.contains(&format!("earlier results: ./{earlier}\n")),
        "{}",
        ran.err
    );
    assert_eq!(read(earlier), first);
    assert_ne!(read(now), first);
}

#[test]
fn a_quiet_run_prints_results_and_errors_only() {
    let folder = scratch();
    let ran = small(
        folder.path(),
        &["--quiet", "--out", ".", "--check-determinism", "--set", "host.hz=250"],
    );
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("| 1x   | ticket  |"), "{}", ran.out);
    let ran = small(folder.path(), &["--quiet", "--set", "limit=1 us"]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.starts_with("error: case 1x"), "{}", ran.err);
}

#[test]
fn nothing_is_colored() {
    for (name, value) in [("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1"), ("TERM", "xterm-256color")] {
        for arguments in [
            &["--help"][..],
            &["run", "--frobnicate"],
            &["run", "nothing"],
            &["list"],
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
                .args(arguments)
                .env(name, value)
                .output();
            let ran = Ran::of(output.expect("the command starts"));
            assert!(!(ran.out + &ran.err).contains('\u{1b}'), "{name} {arguments:?}");
        }
    }
}

#[test]
fn changed_cells_do_not_stand_next_to_published_figures() {
    let folder = scratch();
    let published = |more: &[&str]| {
        let ran = small(folder.path(), &[more, &["--format", "json"]].concat());
        assert_eq!(ran.status, 0, "{}", ran.err);
        let cases = ran.json()["cases"].clone();
        let shown = cases
            .as_array()
            .expect("a list")
            .iter()
            .all(|case| case["published"].is_object());
        // The runs are short, which is said of all of them.
        let remarks = ran.err.lines().filter(|line| !line.starts_with("warning: runs of "));
        (shown, remarks.collect::<Vec<_>>().join("\n"))
    };
    let left_out = "published figures are left out: --set changes the set-up";
    assert_eq!(published(&[]), (true, String::new()));
    // A limit of the run, and what the file sets anyway, change nothing.
    assert_eq!(published(&["--set", "limit=5000 s"]), (true, String::new()));
    assert_eq!(
        published(&["--set", "machine.profile=xeon-x5570"]),
        (true, String::new())
    );
    let (shown, remarks) = published(&["--set", "host.hz=100"]);
    assert!(!shown && remarks.contains(left_out), "{remarks}");
    let (shown, remarks) = published(&["--set", "vm.build.lock=tas"]);
    assert!(!shown && remarks.contains(left_out), "{remarks}");
    let renamed =
        "remark: --set vm.build.lock=tas replaces what the variants ticket set: their names do not say what is run";
    assert!(remarks.contains(renamed), "{remarks}");
}

#[test]
fn a_case_stands_for_each_of_its_swept_values() {
    let folder = scratch();
    let cases = |more: &[&str]| {
        let ran = small(
            folder.path(),
            &[more, &["--sweep", "host.hz=100,250", "--format", "json"]].concat(),
        );
        assert_eq!(ran.status, 0, "{}", ran.err);
        let cases = ran.json()["cases"].clone();
        let cases = cases.as_array().expect("a list").iter();
        cases
            .map(|case| case["case"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(cases(&[]), ["1x hz=100", "1x hz=250"]);
    let ran = holdfast(&[
        "run",
        "--case",
        "1x hz=250",
        "--sweep",
        "host.hz=100,250",
        "--seeds",
        "1",
        "--scale",
        "0.001",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(
        ran.out.contains("1x hz=250") && !ran.out.contains("1x hz=100"),
        "{}",
        ran.out
    );
}

#[test]
fn very_many_runs_are_asked_for() {
    let folder = scratch();
    fs::write(folder.path().join("none"), "").expect("writable");
    let ran = with_input(
        folder.path(),
        &["run", "--seeds", "10001", "--case", "1x", "--variant", "ticket"],
        "none",
    );
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("found 10001 runs, expected at most 10000, or --yes"),
        "{}",
        ran.err
    );
}

#[test]
fn shells_and_man_know_every_command() {
    let folder = scratch();
    for shell in ["bash", "zsh", "fish"] {
        let ran = holdfast(&["completions", shell]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert!(
            ran.out.contains("kernbench") || ran.out.contains("check-determinism"),
            "{shell}"
        );
    }
    let ran = holdfast_in(folder.path(), &["man", "pages"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "{}", ran.err);
    for (page, words) in [
        ("holdfast", "holdfast\\-run(1)"),
        ("holdfast-run", "check\\-determinism"),
        ("holdfast-kvm", "KVM"),
    ] {
        let text = fs::read_to_string(folder.path().join(format!("pages/{page}.1"))).expect(page);
        assert!(text.contains(words), "{page}: {text}");
    }
}

#[test]
fn keys_are_listed_as_json() {
    let ran = holdfast(&["keys", "--format", "json", "halt_poll"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let list = ran.json();
    assert_eq!(list["schema"], "holdfast.keys/1");
    let keys = list["keys"].as_array().expect("a list");
    let grow = keys
        .iter()
        .find(|key| key["key"] == "host.halt_poll_grow")
        .expect("it is there");
    assert_eq!(grow["default"], "2");
    assert!(keys.iter().all(|key| {
        ["key", "about"]
            .iter()
            .any(|field| key[field].as_str().expect("text").contains("halt_poll"))
    }));
    let all = holdfast(&["keys", "--format", "json"]).json();
    let all = all["keys"].as_array().expect("a list");
    assert!(
        all.iter()
            .any(|key| key["key"] == "machine.costs.pause" && key["takes"] != "")
    );
}
