//! Standard output that cannot be written.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::process::{Command, Stdio};

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
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .arg("list")
        .stdout(full)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.starts_with("error: cannot write to standard output: "),
        "{message}"
    );
}
