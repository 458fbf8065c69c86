//! Comparing and explaining result files.

use std::fs;

use crate::command::{holdfast_in, scratch};

#[test]
fn results_can_be_compared_and_explained() {
    let folder = scratch();
    let run = |out: &str, first_seed: &str| {
        let arguments = [
            "run",
            "--seeds",
            "2",
            "--scale",
            "0.002",
            "--case",
            "1x",
            "--out",
            out,
            "--first-seed",
            first_seed,
        ];
        let ran = holdfast_in(folder.path(), &arguments);
        assert_eq!(ran.status, 0, "{}", ran.err);
    };
    run("a", "1");
    run("b", "7");
    let (a, b) = (
        "a/kernbench-overcommit.results.json",
        "b/kernbench-overcommit.results.json",
    );

    let same = holdfast_in(folder.path(), &["compare", a, a]);
    assert_eq!(same.status, 0, "{}", same.err);
    assert!(
        same.out.contains("the same history: what differs did nothing"),
        "{}",
        same.out
    );

    let other = holdfast_in(folder.path(), &["compare", a, b, "--format", "json"]);
    assert_eq!(other.json()["rows"][0]["comparison"]["method"], "welch-t");

    let variants = holdfast_in(
        folder.path(),
        &["compare", a, "--baseline", "pv-ticket", "--format", "json"],
    );
    assert_eq!(variants.json()["rows"][0]["variant_b"], "ticket");
    let unknown = holdfast_in(folder.path(), &["compare", a, "--baseline", "tas"]);
    assert_eq!(unknown.status, 2);
    assert!(
        unknown
            .err
            .contains("baseline: found \"tas\", expected one of ticket, pv-ticket"),
        "{}",
        unknown.err
    );

    let explained = holdfast_in(folder.path(), &["explain", a]);
    assert_eq!(explained.status, 0, "{}", explained.err);
    for expected in ["| useful", "| preempted_holding_lock", "Convoys"] {
        assert!(explained.out.contains(expected), "{expected}: {}", explained.out);
    }
    let document = holdfast_in(folder.path(), &["explain", a, "--format", "json"]).json();
    assert_eq!(document["schema"], "holdfast.explanation/1");

    let text = fs::read_to_string(folder.path().join(a)).expect("readable");
    fs::write(folder.path().join("half.json"), &text[..text.len() / 2]).expect("writable");
    let half = holdfast_in(folder.path(), &["compare", a, "half.json"]);
    assert_eq!((half.status, half.out.as_str()), (2, ""));
    assert!(
        half.err.contains("half.json:") && half.err.contains("found the end of the file"),
        "{}",
        half.err
    );
}
