//! The program's version with the commit that it was built from: a failed run can only be replayed by the same source.

use std::fs;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

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

/// The sources that the outcome of a run depends on, for a given configuration.
const ENGINE: [&str; 8] = [
    "abi/src",
    "guest/src",
    "host/src",
    "locks/history/src",
    "locks/src",
    "machine/src",
    "platforms/sim/src",
    "workloads/src",
];

fn main() {
    println!("cargo::rustc-env=HOLDFAST_BUILD={:032x}", engine());
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

/// Returns a hash of the sources that the outcome of a run depends on, and of the versions of all libraries.
fn engine() -> u128 {
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let mut paths = Vec::new();
    ENGINE
        .iter()
        .for_each(|folder| list(&Path::new("..").join(folder), &mut paths));
    paths.sort_unstable();
    // An archive can lack the lock file.
    paths.push(Path::new("../Cargo.lock").to_owned());
    let mut hasher = SipHasher13::new();
    for path in paths {
        let bytes = fs::read(&path).unwrap_or_default();
        hasher.write(path.to_string_lossy().as_bytes());
        hasher.write(&(bytes.len() as u64).to_le_bytes());
        hasher.write(&bytes);
    }
    hasher.finish128().as_u128()
}

/// Appends the files in `folder` and below it.
fn list(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => list(&path, paths),
            false => paths.push(path),
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir("..").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
