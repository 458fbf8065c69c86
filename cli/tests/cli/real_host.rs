//! Commands that run on the real machine.

mod calibrate;
#[cfg(target_os = "linux")]
mod interrupts;
mod kvm;
#[cfg(target_os = "linux")]
mod record;

use std::fs;

use crate::command::{holdfast, holdfast_in, scratch};

#[test]
fn bad_usage_is_told() {
    for (arguments, expected) in [
        (&["kvm", "run", "linux-pvspin", "--linux=/dev/zero"][..], "/dev/zero: "),
        (&["calibrate", "--base", "."], ".: cannot read it: Is a directory"),
        (&["bench", "--sections", "0"], "--sections"),
        (&["bench", "--locks", "tickt"], "did you mean \"ticket\"?"),
        (&["bench", "--threads", "0"], "--threads"),
        (&["record", "--seconds", "0"], "--seconds"),
        (&["record", "--size", "0"], "--size"),
        (&["record", "--out", "tests"], "expected --out to be a new folder"),
    ] {
        let ran = holdfast(arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn output_that_cannot_be_written_is_refused_before_the_work() {
    let folder = scratch();
    fs::write(folder.path().join("file"), "precious").expect("writable");
    for arguments in [
        &["validate", "threads", "--out", "file/x"][..],
        &["bench", "--quick", "--out", "file/x"],
        &["calibrate", "--out", "file/here.toml"],
        &["kvm", "run", "lock-crossover", "--case", "8-1x-4", "--out", "file"],
    ] {
        let ran = holdfast_in(folder.path(), arguments);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(": cannot write it: "), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("file")).expect("readable"),
        "precious"
    );
}
