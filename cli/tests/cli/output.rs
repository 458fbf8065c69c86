//! Standard output and standard error that cannot be written.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::command::scratch;

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["keys", "--format", "markdown"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let mut message = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut message)
        .expect("UTF-8");
    assert_eq!((child.wait().expect("it ends").code(), message.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    for arguments in [
        &["list"][..],
        &["keys"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
        #[cfg(feature = "real-host")]
        &["kvm", "doctor"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(arguments)
            .stdout(full())
            .output()
            .expect("the command starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.starts_with("error: cannot write to standard output: "),
            "{arguments:?}: {message}"
        );
    }
}

/// A disk without space.
#[cfg(target_os = "linux")]
fn full() -> std::fs::File {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has it")
}

#[cfg(target_os = "linux")]
#[test]
fn remarks_that_nobody_hears_cost_no_results() {
    let run = |stderr: Stdio, target: &str| {
        let folder = scratch();
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .current_dir(folder.path())
            .args([
                "run", target, "--seeds", "1", "--scale", "0.002", "--case", "1x", "--out", "here",
            ])
            .stderr(stderr)
            .output()
            .expect("the command starts");
        let kept = folder.path().join("here/kernbench-overcommit.results.json").exists();
        (output.status.code(), kept, !output.stdout.is_empty())
    };
    let (reader, gone) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(run(full().into(), "kernbench-overcommit"), (Some(0), true, true));
    assert_eq!(run(gone.into(), "kernbench-overcommit"), (Some(0), true, true));
    assert_eq!(run(full().into(), "kernbench-overcomit"), (Some(2), false, false));
}
