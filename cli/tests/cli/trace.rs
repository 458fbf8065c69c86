//! `holdfast trace`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{holdfast, holdfast_in, scratch, skipped};

const SMALL: &[&str] = &["trace", "--scale", "0.002", "--case", "2x", "--variant", "pv-ticket"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [SMALL, more].concat()
}

/// Returns `trace` decoded with Perfetto's own definitions, or `None` if they are not installed.
fn decoded(trace: &Path) -> Option<serde_json::Value> {
    let python = std::env::var("HOLDFAST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let definitions = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let there = Command::new(&python).args(["-c", definitions]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let output = Command::new(&python)
        .args(["-c", include_str!("decode_trace.py")])
        .arg(trace)
        .output()
        .expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("one JSON document"))
}

#[test]
fn the_format_is_perfettos_own() {
    let folder = scratch();
    let ran = holdfast_in(
        folder.path(),
        &with(&["--out", "made/here.pftrace", "--format", "json"]),
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    let path = folder.path().join("made/here.pftrace");
    let said = ran.json();
    assert_eq!(said["bytes"], fs::metadata(&path).expect("it is there").len());
    assert!(ran.err.contains("ui.perfetto.dev"), "{}", ran.err);
    let Some(found) = decoded(&path) else {
        skipped("the trace was not decoded with Perfetto's definitions: no Python with the package perfetto");
        return;
    };
    // Eight pCPUs, three guests of eight vCPUs with two counters, and the group of the pCPUs.
    assert_eq!(found["tracks"], 1 + 8 + 3 * (1 + 8 + 2));
    assert_eq!(found["TYPE_SLICE_BEGIN"], found["TYPE_SLICE_END"]);
    for kind in ["TYPE_SLICE_BEGIN", "TYPE_INSTANT", "TYPE_COUNTER", "flows"] {
        assert!(found[kind].as_u64() > Some(0), "{kind}: {found}");
    }
}

#[test]
fn a_recorded_run_is_the_same_run() {
    let folder = scratch();
    let record = |name: &str, more: &[&str]| {
        let ran = holdfast_in(
            folder.path(),
            &with(&[&["--format", "json", "--out", name], more].concat()),
        );
        assert_eq!(ran.status, 0, "{}", ran.err);
        (ran.json(), fs::read(folder.path().join(name)).expect("it is there"))
    };
    let (said, bytes) = record("one.pftrace", &["--seed", "2"]);
    let (_, again) = record("two.pftrace", &["--seed", "2"]);
    assert_eq!(bytes, again, "equal runs give equal files");
    let ran = holdfast(&[
        "run",
        "--scale",
        "0.002",
        "--case",
        "2x",
        "--variant",
        "pv-ticket",
        "--seeds",
        "1",
        "--first-seed",
        "2",
        "--format",
        "json",
    ]);
    assert_eq!(said["history_hash"], ran.json()["cases"][0]["history_hashes"][0]);
    let (other, _) = record("three.pftrace", &["--from", "30 ms", "--for", "2 ms"]);
    assert_eq!(
        (&other["from_ns"], &other["to_ns"]),
        (&30_000_000.into(), &32_000_000.into())
    );
}

#[test]
fn without_a_name_the_file_has_a_plain_one() {
    let folder = scratch();
    let text = "name = \"a b<c>\"\ntitle = \"t\"\nmetric = \"elapsed\"\n\n[[vm]]\nname = \"g\"\nworkload = \"kernbench\"\n\n[[cases]]\nname = \"x/y\"\n";
    fs::write(folder.path().join("mine.toml"), text).expect("writable");
    let ran = holdfast_in(
        folder.path(),
        &["trace", "mine.toml", "--scale", "0.002", "--for", "1 ms"],
    );
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "{}", ran.err);
    let made = folder.path().join("a_b_c_-x_y-default-1.pftrace");
    assert!(made.is_file(), "{}", ran.err);
}

#[test]
fn bad_input_is_told() {
    let complaint = |arguments: &[&str]| {
        let folder = scratch();
        let ran = holdfast_in(folder.path(), arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert_eq!(
            fs::read_dir(folder.path()).expect("a folder").count(),
            0,
            "nothing is left behind"
        );
        ran.err
    };
    let late = complaint(&with(&["--from", "900 s"]));
    assert!(late.contains("--from: found \"900 s\", expected less than "), "{late}");
    let none = complaint(&with(&["--for", "0 ms"]));
    assert!(
        none.contains("--for: found \"0 ms\", expected more than nothing"),
        "{none}"
    );
    let unit = complaint(&with(&["--from", "3 parsecs"]));
    assert!(
        unit.contains("--from: found \"3 parsecs\", expected a time with its unit"),
        "{unit}"
    );
    let case = complaint(&["trace", "--case", "4x"]);
    assert!(
        case.contains("--case: found \"4x\", expected one of 1x, 2x, 3x"),
        "{case}"
    );
    let variant = complaint(&["trace", "--variant", "pvticket"]);
    assert!(variant.contains("did you mean \"pv-ticket\"?"), "{variant}");
    let missing = complaint(&["trace", "none.toml"]);
    assert!(missing.contains("none.toml: cannot read it"), "{missing}");
    let set = complaint(&with(&["--set", "vm.0.lokc=tas"]));
    assert!(set.contains("vm.0.lokc: found an unknown key"), "{set}");
}

#[test]
fn a_failed_run_is_recorded_up_to_its_failure() {
    let folder = scratch();
    let ran = holdfast_in(
        folder.path(),
        &with(&["--set", "limit=40 ms", "--out", "f.pftrace", "--format", "json"]),
    );
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.err.contains("virtual-time limit reached"), "{}", ran.err);
    let said = ran.json();
    assert_eq!(
        (&said["to_ns"], &said["history_hash"]),
        (&40_000_000.into(), &serde_json::Value::Null)
    );
    let path = folder.path().join("f.pftrace");
    assert!(path.is_file());
    if decoded(&path).is_none() {
        skipped("the trace of a failed run was not decoded");
    }
}
