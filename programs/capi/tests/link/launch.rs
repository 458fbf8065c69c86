//! How tests build a library, and run compilers and programs. The tests of `programs/preload` use it, too.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of the package that is tested.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds a library of the package, which `cargo test` does not do, and returns the path of the file `name`.
///
/// It uses a target directory of its own, because another build with other flags may run at the same time. A build with
/// features, which would overwrite the file, has a further one.
pub fn build(what: &[&str], name: &str) -> PathBuf {
    let folder = if what.contains(&"--features") {
        "featured"
    } else {
        "static"
    };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Offline: the test itself was compiled from the same sources.
    cargo.args([
        "build",
        "--locked",
        "--offline",
        "--message-format=json-render-diagnostics",
    ]);
    cargo.args(what).arg("--manifest-path").arg(here().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(target);
    let messages = succeed(&mut cargo);
    let artifact = messages.split('"').find(|text| text.ends_with(name));
    artifact
        .unwrap_or_else(|| panic!("cargo has built no {name}:\n{messages}"))
        .into()
}

/// Runs `command`, which must succeed, and returns its output.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let ran = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(
        ran.status.success(),
        "{command:?}: {}\n{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Returns a new folder, which is removed when it is dropped. It is not in `TMPDIR`, which may name anything.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo has made the folder above")
}

/// Returns whether there is `program`. Prints a message if there is none.
pub fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    let missing = there.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if missing {
        println!("SKIPPED: there is no {program}");
    }
    !missing
}
