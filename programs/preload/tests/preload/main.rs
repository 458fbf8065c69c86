//! Programs run with the library in front of the C library, and without it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

#[path = "../../../capi/tests/link/launch.rs"]
mod launch;

use launch::{build, has, here, scratch, succeed};

/// Returns the path of the library.
fn library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| build(&["--lib"], "libholdfast_preload.so"));
    &LIBRARY
}

/// Compiles a C file. Returns `None`, and prints a message, if there is no compiler.
fn compile(source: &Path, arguments: &[&str], folder: &Path) -> Option<PathBuf> {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    if !has(&cc) {
        return None;
    }
    let program = folder.join("program");
    let mut cc = Command::new(cc);
    cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(arguments);
    succeed(cc.arg(source).arg("-o").arg(&program));
    Some(program)
}

fn under(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library());
    command
}

#[test]
fn mutexes_of_every_type_behave_as_in_the_c_library() {
    let folder = scratch();
    let Some(program) = compile(&here().join("tests/preload/types.c"), &[], folder.path()) else {
        return;
    };
    assert_eq!(
        succeed(&mut Command::new(&program)),
        "all kept\n",
        "the C library itself"
    );
    assert_eq!(succeed(under(&program).arg("replaced")), "all kept\n");
    let mut without = under(&program);
    without.arg("replaced").env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    assert_eq!(succeed(&mut without), "all kept\n");
}

/// The library whose holders ask the kernel for more time. Most kernels give none; then it must be the same.
#[test]
fn mutexes_that_ask_for_more_time_behave_as_in_the_c_library() {
    let (folder, library) = (
        scratch(),
        build(&["--lib", "--features", "slice_extension"], "libholdfast_preload.so"),
    );
    for (source, argument) in [("types.c", Some("replaced")), ("crowd.c", None)] {
        let Some(program) = compile(&here().join("tests/preload").join(source), &[], folder.path()) else {
            return;
        };
        let mut run = Command::new(program);
        assert_eq!(succeed(run.args(argument).env("LD_PRELOAD", &library)), "all kept\n");
    }
}

#[test]
fn a_crowd_shares_queues_and_forks() {
    let folder = scratch();
    let Some(program) = compile(&here().join("tests/preload/crowd.c"), &[], folder.path()) else {
        return;
    };
    assert_eq!(succeed(&mut under(&program)), "all kept\n");
}

/// The circumstances of the C library's lock, for the mutex that takes its place.
#[test]
fn a_replaced_mutex_behaves_in_every_circumstance() {
    let folder = scratch();
    let source = here().join("../capi/tests/link/circumstances.c");
    let Some(program) = compile(&source, &["-DPTHREAD"], folder.path()) else {
        return;
    };
    let circumstances = [
        "signals",
        "cancel",
        "fork",
        "exec",
        "storm",
        "quota",
        "sandbox-eperm",
        "sandbox-enosys",
    ];
    for circumstance in circumstances {
        let said = succeed(under(&program).arg(circumstance));
        println!("{circumstance}: {said}");
        assert!(
            said == "kept\n" || said.starts_with("SKIPPED"),
            "{circumstance}: {said}"
        );
    }
}

/// The program's own allocator, which replaces the C library's, locks a mutex that this library has replaced.
#[test]
fn a_replaced_mutex_guards_the_allocator_of_a_program() {
    let folder = scratch();
    let source = here().join("../capi/tests/link/allocator.c");
    let Some(program) = compile(&source, &["-DPTHREAD"], folder.path()) else {
        return;
    };
    assert_eq!(succeed(&mut Command::new(&program)), "kept\n", "the C library itself");
    assert_eq!(succeed(&mut under(&program)), "kept\n");
}

#[test]
fn an_unlock_of_a_free_mutex_ends_the_program_with_the_function_and_the_address() {
    let folder = scratch();
    let Some(program) = compile(&here().join("tests/preload/unlock.c"), &[], folder.path()) else {
        return;
    };
    let ran = under(&program).output().expect("it starts");
    let [address, message] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).expect("text"));
    let expected = format!(
        "holdfast: pthread_mutex_unlock: cannot unlock the lock at {}: it is not held",
        address.trim()
    );
    assert!(
        message.starts_with(&expected) && message.lines().count() == 1,
        "{message}"
    );
    assert!(!ran.status.success());
}

#[test]
fn python_runs_threads_pools_and_processes() {
    if !has("python3") {
        return;
    }
    let mut python = under(Path::new("python3"));
    assert_eq!(
        succeed(python.arg(here().join("tests/preload/threads.py"))),
        "all kept\n"
    );
}
