//! Progress: bars on terminals that can draw them, and few messages elsewhere.

use std::process::Command;

use crate::command::{holdfast, scratch, skipped};

/// Returns the bytes that a run sends to a terminal called `term`, or `None` if no program that makes terminals is
/// installed.
fn sent(term: &str) -> Option<String> {
    let command = "\"$HOLDFAST\" run --seeds 2 --scale 0.002 --case 1x --out \"$OUT\" >/dev/null; \
                   printf 'status %s' $?";
    let folder = scratch();
    let output = Command::new("script")
        .args(["-qec", command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("HOLDFAST", env!("CARGO_BIN_EXE_holdfast"))
        .env("TERM", term)
        .env("OUT", folder.path())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    let sent = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(sent.ends_with("status 0"), "{sent:?}");
    Some(sent)
}

#[test]
fn only_a_terminal_that_can_draw_is_sent_bars() {
    let Some(drawn) = sent("xterm") else {
        skipped("bars were not looked at: no `script` of util-linux");
        return;
    };
    assert!(drawn.contains('\u{1b}') && drawn.contains("runs"), "{drawn:?}");
    let dumb = sent("dumb").expect("it was there a moment ago");
    assert!(!dumb.contains('\u{1b}') && !dumb.contains("runs "), "{dumb:?}");
    assert!(dumb.contains("results: "), "{dumb:?}");
}

#[test]
fn a_file_is_sent_no_bars() {
    let ran = holdfast(&["run", "--seeds", "2", "--scale", "0.002", "--case", "1x"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}
