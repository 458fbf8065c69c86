//! Runs the built command.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `holdfast ARGUMENTS` in `folder`.
pub fn holdfast_in<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .current_dir(folder)
        .args(arguments)
        .output();
    let Output { status, stdout, stderr } = output.expect("the command starts");
    Ran {
        status: status.code().expect("no signal"),
        out: String::from_utf8(stdout).expect("UTF-8"),
        err: String::from_utf8(stderr).expect("UTF-8"),
    }
}

/// Runs `holdfast ARGUMENTS`.
pub fn holdfast<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    holdfast_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

impl Ran {
    /// Standard output as the one JSON document that it must be.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}
