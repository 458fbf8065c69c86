//! C programs link with the header and the static library and test the promises of the header.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

mod copies;
mod cpp;
mod launch;
mod misuse;

use launch::{build, has, here, scratch, succeed};

/// The libraries with which a C program must link besides this one, as the header says.
const LIBRARIES: &[&str] = &["-lpthread", "-ldl", "-lm"];

/// Returns the path of the static library.
fn library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| build(&["--lib"], "libholdfast.a"));
    &LIBRARY
}

/// Returns the path of the static library with the locks of std and parking_lot.
fn peers() -> &'static Path {
    static PEERS: LazyLock<PathBuf> = LazyLock::new(|| build(&["--example", "peers"], "libpeers.a"));
    &PEERS
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

fn has_compiler() -> bool {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    has(&cc)
}

/// Returns whether programs can be linked statically. Prints a message if they cannot.
fn links_statically(folder: &Path) -> bool {
    let (source, empty) = (folder.join("empty.c"), folder.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    let linked = compiler().arg("-static").arg(source).arg("-o").arg(empty).output();
    let linked = linked.is_ok_and(|linked| linked.status.success());
    if !linked {
        println!("SKIPPED: there is no static C library");
    }
    linked
}

/// Compiles one C file of this folder.
#[track_caller]
fn compile(source: &str, into: &Path, arguments: &[&str], libraries: &[&Path]) {
    compile_by(compiler(), source, into, arguments, libraries, LIBRARIES);
}

/// As [`compile`], by the compiler `cc`, and with the libraries `system` of the C library.
#[track_caller]
fn compile_by(mut cc: Command, source: &str, into: &Path, arguments: &[&str], libraries: &[&Path], system: &[&str]) {
    cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(arguments);
    cc.arg("-I").arg(here().join("include"));
    cc.arg(here().join("tests/link").join(source))
        .args(libraries)
        .args(system);
    succeed(cc.arg("-o").arg(into));
}

#[test]
fn a_c_program_finds_every_promise_kept() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let program = folder.path().join("lock");
    compile("lock.c", &program, &[], &[library()]);
    assert_eq!(succeed(&mut Command::new(program)), "all kept\n");
}

/// A lock may guard the allocator: no call of any type allocates, loads a library or opens a file.
#[test]
fn a_lock_guards_the_allocator_of_a_program() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let program = folder.path().join("allocator");
    compile("allocator.c", &program, &["-pthread"], &[library()]);
    for rseq in ["1", "0"] {
        let tunable = format!("glibc.pthread.rseq={rseq}");
        assert_eq!(succeed(Command::new(&program).env("GLIBC_TUNABLES", tunable)), "kept\n");
    }
}

/// The circumstances of `circumstances.c` under which a program may meet a lock.
const CIRCUMSTANCES: &[&str] = &[
    "signals",
    "cancel",
    "fork",
    "exec",
    "storm",
    "quota",
    "sandbox-eperm",
    "sandbox-enosys",
];

/// The circumstances that take six seconds or more.
const LONG: &[&str] = &["cancel", "fork"];

fn keep_every_promise(program: &Path, settings: &[(&str, &str)]) {
    for &circumstance in CIRCUMSTANCES {
        let mut run = Command::new(program);
        let said = succeed(run.arg(circumstance).envs(settings.iter().copied()));
        println!("{circumstance}: {said}");
        assert!(
            said == "kept\n" || said.starts_with("SKIPPED"),
            "{circumstance}: {said}"
        );
    }
}

#[test]
fn a_c_lock_behaves_in_every_circumstance() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let program = folder.path().join("circumstances");
    compile("circumstances.c", &program, &[], &[library()]);
    keep_every_promise(&program, &[]);
    // Without restartable sequences unlocks are exchanges.
    keep_every_promise(&program, &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
}

/// The same circumstances for waits with deadlines, the reader-writer lock and the condition variable.
#[test]
fn the_other_types_for_c_behave_in_every_circumstance() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    for flag in ["-DTIMED", "-DRWLOCK", "-DCOND"] {
        println!("{flag}");
        let program = folder.path().join("circumstances");
        compile("circumstances.c", &program, &[flag], &[library()]);
        keep_every_promise(&program, &[]);
    }
}

/// The library whose holders ask the kernel for more time. Most kernels give none; then it must be the same.
#[test]
fn locks_that_ask_for_more_time_behave_in_every_circumstance() {
    if !has_compiler() {
        return;
    }
    let (folder, library) = (
        scratch(),
        build(&["--lib", "--features", "slice_extension"], "libholdfast.a"),
    );
    let program = folder.path().join("program");
    for flags in [&[][..], &["-DTIMED"], &["-DRWLOCK"], &["-DCOND"]] {
        println!("{flags:?}");
        compile("circumstances.c", &program, flags, &[&library]);
        keep_every_promise(&program, &[]);
    }
    for source in ["lock.c", "types.c"] {
        compile(source, &program, &[], &[&library]);
        assert_eq!(succeed(&mut Command::new(&program)), "all kept\n");
    }
}

#[test]
fn the_other_types_for_c_keep_every_promise() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let program = folder.path().join("types");
    compile("types.c", &program, &[], &[library()]);
    assert_eq!(succeed(&mut Command::new(program)), "all kept\n");
}

/// A program that is linked statically, C library included, finds no `dlsym` that works.
#[test]
fn a_c_lock_behaves_in_a_static_program() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    if !links_statically(folder.path()) {
        return;
    }
    let program = folder.path().join("circumstances");
    compile("circumstances.c", &program, &["-static"], &[library()]);
    keep_every_promise(&program, &[]);
}

const MUSL: &str = "x86_64-unknown-linux-musl";

/// Returns Rust's own libraries for musl. Prints a message if they or the compiler for C are missing.
fn rust_for_musl() -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let libraries = succeed(rustc.args(["--print", "target-libdir", "--target", MUSL]));
    let libraries = Path::new(libraries.trim()).join("self-contained");
    let has_compiler = Command::new("musl-gcc").arg("--version").output().is_ok();
    if libraries.exists() && has_compiler {
        return Some(libraries);
    }
    println!("SKIPPED: there is no musl-gcc, or no standard library of Rust for musl");
    None
}

/// Another C library: its own threads and locks, no restartable sequences, no `dlsym` that finds anything.
#[test]
fn a_c_lock_behaves_with_musl() {
    let Some(rust) = rust_for_musl() else { return };
    let (folder, musl) = (scratch(), build(&["--lib", "--target", MUSL], "libholdfast.a"));
    // The headers of the kernel, which musl-gcc does not look for. Rust's unwinder instead of the compiler's, which
    // needs glibc.
    let headers = [
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
    ];
    let arguments = [&["-static", "-nodefaultlibs"], headers.as_slice()].concat();
    let libraries = [musl.as_path(), &rust.join("libunwind.a")];
    for (source, expected) in [("lock.c", Some("all kept\n")), ("circumstances.c", None)] {
        let program = folder.path().join("program");
        let cc = Command::new("musl-gcc");
        compile_by(cc, source, &program, &arguments, &libraries, &["-lc", "-lgcc"]);
        match expected {
            Some(expected) => assert_eq!(succeed(&mut Command::new(program)), expected),
            None => keep_every_promise(&program, &[]),
        }
    }
}

/// The locks that programs compare with: what they are called, the flag that compiles `circumstances.c` with them, and
/// whether they are in the library of [`peers`].
const PEERS: &[(&str, &str, bool)] = &[
    ("pthread mutex", "-DPTHREAD", false),
    ("std::sync::Mutex", "-DPEER=std", true),
    ("parking_lot::RawMutex", "-DPEER=parking_lot", true),
];

/// Compiles `circumstances.c` with another lock, and returns the program.
fn compile_peer(folder: &Path, flag: &str, linked: bool, more: &[&str]) -> PathBuf {
    let program = folder.join("circumstances");
    let libraries: &[&Path] = if linked { &[peers()] } else { &[] };
    compile("circumstances.c", &program, &[&[flag], more].concat(), libraries);
    program
}

/// Runs `program` through a circumstance, and returns the last line that it says.
fn report(program: &Path, circumstance: &str, settings: &[(&str, &str)]) -> String {
    let mut run = Command::new(program);
    let ran = run.arg(circumstance).envs(settings.iter().copied()).output();
    let ran = ran.expect("it starts");
    let said = String::from_utf8_lossy(if ran.status.success() { &ran.stdout } else { &ran.stderr });
    said.lines().last().unwrap_or_default().to_owned()
}

/// The same program with other locks. They are not ours, so the test only reports them (`--nocapture`);
/// `docs/programs/behavior.md` shows the report.
#[test]
fn other_locks_run_through_short_circumstances() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    for &(name, flag, linked) in PEERS {
        let program = compile_peer(folder.path(), flag, linked, &[]);
        report_all(name, &program, &[], |circumstance| !LONG.contains(&circumstance));
    }
}

/// The rest of that report: the long circumstances, without restartable sequences, in static programs, and 20 runs of
/// the circumstance that a few runs do not judge.
#[test]
#[ignore = "takes minutes, and judges locks that are not ours"]
fn other_locks_run_through_all_circumstances_in_every_way() {
    let folder = scratch();
    let is_static = links_statically(folder.path());
    for &(name, flag, linked) in PEERS {
        let program = compile_peer(folder.path(), flag, linked, &[]);
        report_all(name, &program, &[], |circumstance| LONG.contains(&circumstance));
        let without_rseq = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
        report_all(&format!("{name} without rseq"), &program, &without_rseq, |_| true);
        let hung = (0..20).filter(|_| report(&program, "fork", &[]) != "kept").count();
        println!("{name}, fork: {hung} of 20 runs hung");
        if is_static {
            let program = compile_peer(folder.path(), flag, linked, &["-static"]);
            report_all(&format!("{name} in a static program"), &program, &[], |_| true);
        }
    }
}

/// Reports the circumstances that `wanted` accepts.
fn report_all(name: &str, program: &Path, settings: &[(&str, &str)], wanted: impl Fn(&str) -> bool) {
    for &circumstance in CIRCUMSTANCES.iter().filter(|circumstance| wanted(circumstance)) {
        println!("{name}, {circumstance}: {}", report(program, circumstance, settings));
    }
}

/// The kernel and the C library keep addresses in the library for threads that have used a lock. So the library stays
/// loaded when the plugin is unloaded.
#[test]
fn a_plugin_with_the_library_can_be_unloaded() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let (plugin, host) = (folder.path().join("plugin.so"), folder.path().join("host"));
    compile("plugin.c", &plugin, &["-shared", "-fPIC"], &[library()]);
    compile("host.c", &host, &[], &[]);
    assert_eq!(succeed(Command::new(host).arg(plugin)), "all kept\n");
}

/// Returns the names of the functions that the header declares, in order.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(here().join("include/holdfast.h")).expect("the header");
    let declarations = header
        .lines()
        .filter(|line| line.starts_with("void ") || line.starts_with("bool "));
    let name = |line: &str| line.split([' ', '(']).nth(1).expect("a function's name").to_owned();
    let mut names: Vec<String> = declarations.map(name).collect();
    names.sort_unstable();
    names
}

/// Returns the output of `pkg-config ARGUMENTS holdfast` for the library that is installed below `prefix`.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> std::io::Result<Vec<String>> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let output = command.args(arguments).arg("holdfast").output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Spaces of a path are escaped.
    let flags = String::from_utf8_lossy(&output.stdout).replace("\\ ", "\0");
    Ok(flags.split_whitespace().map(|flag| flag.replace('\0', " ")).collect())
}

/// Installs the library below `prefix`.
fn install(prefix: &Path) {
    let mut install = Command::new(here().join("install"));
    install.arg(prefix).env("CARGO_NET_OFFLINE", "true");
    succeed(install.env(
        "CARGO_TARGET_DIR",
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("static"),
    ));
}

#[test]
fn the_script_that_installs_explains_itself_and_refuses_unknown_options() {
    let folder = scratch();
    let run = |argument: &str| {
        let mut install = Command::new(here().join("install"));
        install
            .arg(argument)
            .current_dir(folder.path())
            .output()
            .expect("it starts")
    };
    let helps = run("--help");
    assert!(helps.status.success() && String::from_utf8_lossy(&helps.stdout).contains("Usage: install ["));
    let refused = run("--chekc");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no such option: --chekc"));
    assert_eq!(
        folder.path().read_dir().expect("a folder").count(),
        0,
        "nothing is installed"
    );
}

/// Runs a program with the installed library that takes the place of pthread mutexes. With the argument the program
/// checks that its mutexes are not the C library's.
fn take_place_of_mutexes(prefix: &Path, folder: &Path) {
    let preload = pkg_config(prefix, &["--variable=preload"]).expect("pkg-config has run before");
    let program = folder.join("mutexes");
    compile("../../../preload/tests/preload/types.c", &program, &["-pthread"], &[]);
    let mut run = Command::new(program);
    assert_eq!(
        succeed(run.arg("replaced").env("LD_PRELOAD", preload.concat())),
        "all kept\n"
    );
}

/// Installs the library, and compiles the C program of the tutorial with the flags of pkg-config, in both ways.
#[test]
fn an_installed_library_exports_its_functions_only_and_serves_the_tutorial() {
    if !has_compiler() {
        return;
    }
    let folder = scratch();
    let (prefix, source) = (folder.path().join("prefix"), folder.path().join("count.c"));
    install(&prefix);

    let shared = prefix.join("lib/libholdfast.so");
    let exported = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&shared));
    let mut exported: Vec<&str> = exported
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    exported.sort_unstable();
    assert_eq!(exported, declared());
    let bytes = std::fs::metadata(&shared).expect("it is installed").len();
    println!("the shared library has {bytes} bytes");
    assert!(bytes < 1 << 20, "{bytes} bytes");

    let tutorial = std::fs::read_to_string(here().join("../../docs/tutorial/embed-a-lock.md")).expect("the document");
    let (_, program) = tutorial.split_once("```c\n").expect("a C program");
    let (program, _) = program.split_once("```").expect("the end of the program");
    std::fs::write(&source, program).expect("writable");
    let program = folder.path().join("count");
    let Ok(flags) = pkg_config(&prefix, &["--cflags", "--libs"]) else {
        println!("SKIPPED: there is no pkg-config");
        return;
    };
    let mut cc = compiler();
    succeed(cc.arg(&source).args(flags).args(["-pthread", "-o"]).arg(&program));
    // Found where it is installed, without LD_LIBRARY_PATH.
    let count = succeed(&mut Command::new(&program));
    assert_eq!(count, "8000\n");
    take_place_of_mutexes(&prefix, folder.path());
    copies::shares_locks_with(&shared);
    // Without the shared library the same name is the static one.
    for name in ["libholdfast.so", "libholdfast.so.0"] {
        std::fs::remove_file(prefix.join("lib").join(name)).expect("it is installed");
    }
    let flags = pkg_config(&prefix, &["--static", "--cflags", "--libs"]).expect("as above");
    let mut cc = compiler();
    succeed(cc.arg(&source).args(flags).args(["-pthread", "-o"]).arg(&program));
    assert_eq!(succeed(&mut Command::new(&program)), "8000\n");
}
