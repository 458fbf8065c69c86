//! The program's version with the commit that it was built from: a failed run can only be replayed by the same source.

use std::path::Path;
use std::process::Command;

/// Whatever can change how a run goes.
const SOURCES: [&str; 11] = [
    "abi",
    "cli/src",
    "experiments",
    "guest",
    "host",
    "lab/src",
    "locks",
    "machine",
    "platforms/sim",
    "real-host/src",
    "workloads",
];

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../{source}");
    }
    // A commit changes no source, and yet the version. (A file that is not there would make every build a new one.)
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new("..").join(path).exists()) {
            println!("cargo::rerun-if-changed=../{path}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let version = match git(&["rev-parse", "--short=12", "HEAD"]) {
        // Without a repository (an archive) the number must do.
        None => version.to_owned(),
        Some(commit) => {
            let changed =
                git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| !changes.is_empty());
            format!("{version}+{commit}{}", if changed { "-modified" } else { "" })
        }
    };
    println!("cargo::rustc-env=HOLDFAST_VERSION={version}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir("..").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
