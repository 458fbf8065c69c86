//! What the library says to a program that misuses it, and what the library for debugging says in addition.

use std::path::Path;
use std::process::Command;

use super::launch::{build, has, here, scratch, succeed};
use super::{compile, has_compiler, library};

/// Misuses a lock. Returns the addresses of the objects, the message, and whether the program went on.
fn misuse(program: &Path, how: &str) -> ([String; 4], String, bool) {
    let ran = Command::new(program).arg(how).output().expect("it starts");
    let (said, message) = [ran.stdout, ran.stderr]
        .map(|text| String::from_utf8(text).expect("text"))
        .into();
    let mut lines = said.lines();
    let addresses: Vec<String> = lines.next().expect("addresses").split(' ').map(str::to_owned).collect();
    assert_eq!(
        ran.status.success(),
        lines.next() == Some("went on"),
        "{how}: {message}"
    );
    (addresses.try_into().expect("four"), message, ran.status.success())
}

#[test]
fn misuse_ends_the_program_with_the_function_and_the_address_in_one_line() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let program = folder.path().join("misuse");
    compile("misuse.c", &program, &["-pthread"], &[library()]);
    for (how, function) in [("unlock", "holdfast_lock_unlock"), ("wait", "holdfast_cond_wait")] {
        let ([lock, ..], message, went_on) = misuse(&program, how);
        let expected = format!("holdfast: {function}: cannot unlock the lock at {lock}: it is not held");
        assert!(
            message.starts_with(&expected) && message.lines().count() == 1,
            "{message}"
        );
        assert!(!went_on);
    }
}

#[test]
fn the_library_for_debugging_finds_what_error_checking_mutexes_find_and_orders() {
    if !has_compiler() {
        return;
    }
    let (folder, checking) = (scratch(), build(&["--lib", "--features", "check"], "libholdfast.a"));
    let program = folder.path().join("misuse");
    compile("misuse.c", &program, &["-pthread"], &[&checking]);
    let refused = [
        ("unlock", "holdfast_lock_unlock", 0, "this thread does not hold it"),
        ("wait", "holdfast_cond_wait", 0, "this thread does not hold it"),
        (
            "twice",
            "holdfast_lock_lock",
            0,
            "this thread holds it already, and would wait forever",
        ),
        (
            "other-thread",
            "holdfast_lock_unlock",
            0,
            "this thread does not hold it",
        ),
        (
            "writer-as-reader",
            "holdfast_rwlock_rdunlock",
            2,
            "this thread holds it in the other way, as reader or writer",
        ),
    ];
    for (how, function, object, what) in refused {
        let (addresses, message, went_on) = misuse(&program, how);
        assert_eq!(
            message,
            format!("holdfast: {function}({}): {what}\n", addresses[object]),
            "{how}"
        );
        assert!(!went_on);
    }
    let reported = [
        ("read-twice", 1, "holdfast_rwlock_rdlock("),
        ("order", 3, "lock order: this thread holds 0x"),
        ("wait-order", 2, "holdfast_cond_timedwait("),
        ("two-locks", 1, "another thread waits for it with the lock 0x"),
    ];
    for (how, lines, part) in reported {
        let (_, message, went_on) = misuse(&program, how);
        assert!(went_on && message.contains(part), "{how}: {message}");
        assert_eq!(message.lines().count(), lines, "{how}: {message}");
    }
    for fine in ["", "initialized-again"] {
        let (_, message, went_on) = misuse(&program, fine);
        assert!(went_on && message.is_empty(), "{fine}: {message}");
    }
    for source in ["lock.c", "types.c"] {
        compile(source, &program, &[], &[&checking]);
        assert_eq!(succeed(&mut Command::new(&program)), "all kept\n");
    }
}

/// ThreadSanitizer and helgrind do not see what a lock orders. The library for debugging tells them.
#[test]
fn the_library_for_debugging_tells_other_tools_what_locks_order() {
    if !has_compiler() {
        return;
    }
    let (folder, checking) = (scratch(), build(&["--lib", "--features", "check"], "libholdfast.a"));
    let program = folder.path().join("ordered");
    let suppressions = format!("--suppressions={}", here().join("helgrind.supp").display());
    let helgrind = ["--tool=helgrind", "--error-exitcode=1", &suppressions];
    for (tool, arguments) in [("-fsanitize=thread", &[][..]), ("-g", &helgrind)] {
        if !arguments.is_empty() && !has("valgrind") {
            continue;
        }
        let runs = |define: &[&str]| {
            compile(
                "ordered.c",
                &program,
                &[&["-pthread", tool], define].concat(),
                &[&checking],
            );
            let mut run = if arguments.is_empty() {
                Command::new(&program)
            } else {
                let mut valgrind = Command::new("valgrind");
                valgrind.args(arguments).arg(&program);
                valgrind
            };
            run.output().expect("it starts")
        };
        let ran = runs(&[]);
        let said = String::from_utf8_lossy(&ran.stderr);
        if said.contains("FATAL: ThreadSanitizer") || said.contains("valgrind: failed") {
            println!("SKIPPED: {tool} does not run here: {said}");
            continue;
        }
        assert!(ran.status.success(), "{tool}: {said}");
        // A tool that sees nothing would pass, too.
        let raced = runs(&["-DRACE"]);
        assert!(!raced.status.success(), "{tool} finds the race");
    }
}
