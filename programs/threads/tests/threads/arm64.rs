//! Reads the machine code of an uncontended lock and unlock on arm64: how many atomic instructions they execute, in
//! which order of memory, and how many others. The compiler alone is needed, with the target's standard library.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Returns the assembly of `examples/pairs.rs`, or `None` if the target's standard library is not installed.
fn assembly(features: &str) -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let libraries = String::from_utf8(libraries.ok()?.stdout).ok()?;
    let libraries = fs::read_dir(libraries.trim()).ok()?;
    libraries
        .flatten()
        .find(|file| file.file_name().to_string_lossy().starts_with("libstd-"))?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("arm64");
    fs::create_dir_all(&folder).expect("the folder is the tests'");
    // A file for each set of features: the compiler does not run again if nothing has changed.
    let file = folder.join(format!("pairs{features}.s"));
    let compiled = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "--quiet",
            "--locked",
            "--release",
            "--example",
            "pairs",
            "--target",
            TARGET,
        ])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .args(["--", "-Ccodegen-units=1"])
        .arg(format!("--emit=asm={}", file.display()))
        .arg(format!("-Ctarget-feature={features}"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .expect("cargo runs this test");
    assert!(compiled.success(), "the example does not compile for {TARGET}");
    Some(fs::read_to_string(file).expect("the compiler writes the assembly"))
}

/// The instructions that one path through a function executes.
#[derive(Debug, Default)]
struct Executed {
    instructions: usize,
    /// The atomic instructions and the stores that release, in order.
    ordered: Vec<String>,
}

/// Returns the shortest path from the start of `function` to its return, on which no function is called. Every other
/// path waits or repeats something, so this is the uncontended one. Outlined atomic instructions are no calls.
fn shortest_path(assembly: &str, function: &str) -> Option<Executed> {
    let mut labels = HashMap::new();
    let mut code = Vec::new();
    let start = assembly.split_once(&format!("\n{function}:\n"))?.1;
    for line in start.lines().take_while(|line| !line.starts_with(".Lfunc_end")) {
        match line.strip_suffix(':') {
            Some(label) => _ = labels.insert(label, code.len()),
            None if !line.trim_start().starts_with('.') => code.push(line.trim()),
            None => {}
        }
    }
    // Breadth first: `came[i]` is the instruction before `i` on the shortest path.
    let mut came = vec![None; code.len()];
    let mut todo = VecDeque::from([0]);
    while let Some(at) = todo.pop_front() {
        let mut next = |to: usize| {
            if to != 0 && to < code.len() && came[to].is_none() {
                came[to] = Some(at);
                todo.push_back(to);
            }
        };
        let name = code[at].split_whitespace().next()?;
        let target = || labels.get(code[at].rsplit([' ', '\t']).next()?).copied();
        match name {
            "ret" => {
                let mut path: Vec<_> = std::iter::successors(Some(at), |&at| came[at]).collect();
                path.reverse();
                return Some(Executed {
                    instructions: path.len(),
                    ordered: path.iter().filter_map(|&at| ordered(code[at])).collect(),
                });
            }
            "bl" | "blr" | "br" if ordered(code[at]).is_none() => {}
            "b" => target().into_iter().for_each(&mut next),
            _ => {
                next(at + 1);
                let branches = name.starts_with("b.") || ["cbz", "cbnz", "tbz", "tbnz"].contains(&name);
                target().filter(|_| branches).into_iter().for_each(&mut next);
            }
        }
    }
    None
}

/// Returns the name of an instruction if it is atomic or releases, without the prefix of outlined ones.
fn ordered(instruction: &str) -> Option<String> {
    let mut words = instruction.split_whitespace();
    let name = words.next()?;
    if let Some(outlined) = words.next().and_then(|target| target.strip_prefix("__aarch64_")) {
        return (name == "bl").then(|| {
            outlined
                .replace("4_acq_rel", "al")
                .replace("4_acq", "a")
                .replace("4_rel", "l")
        });
    }
    let is_atomic = ["cas", "swp", "ldadd", "ldclr", "ldset"]
        .iter()
        .any(|kind| name.starts_with(kind));
    (is_atomic || name == "stlr").then(|| name.to_owned())
}

/// What an uncontended lock and unlock may execute.
struct Expected {
    raw: &'static str,
    ordered: [&'static str; 2],
    instructions_max: usize,
}

const fn expect(raw: &'static str, ordered: [&'static str; 2], instructions_max: usize) -> Expected {
    Expected {
        raw,
        ordered,
        instructions_max,
    }
}

/// The last column leaves room for another compiler's registers. [`RawPvTicket`](holdfast_threads::RawPvTicket) is
/// missing: the shortest path of its unlock is the one that finds a halted waiter.
const EXPECTED: [Expected; 8] = [
    expect("RawTas", ["swpa", "stlr"], 8),
    expect("RawTtas", ["casa", "stlr"], 16),
    expect("RawTicket", ["ldadda", "ldclrl"], 24),
    expect("RawQspin", ["casa", "ldclrl"], 18),
    expect("RawUnfairQspin", ["casa", "ldclrl"], 24),
    expect("RawPvQspin", ["casa", "casl"], 28),
    expect("RawUnfairPvQspin", ["casa", "casl"], 34),
    expect("RawHybrid", ["casa", "casl"], 38),
];

/// Two atomic instructions, of which the first acquires and the second releases: also if the program finds out at run
/// time whether the CPU has them (`outline-atomics`, the target's default).
#[test]
fn an_uncontended_lock_and_unlock_have_two_atomic_instructions_on_arm64() {
    for features in ["+lse", "-lse"] {
        let Some(assembly) = assembly(features) else {
            println!("SKIPPED: the standard library for {TARGET} is not installed");
            return;
        };
        for expected in &EXPECTED {
            let function = format!("holdfast_pair_{}", expected.raw);
            let path = shortest_path(&assembly, &function);
            let path = path.unwrap_or_else(|| panic!("{function}: each path calls a function"));
            println!("{features} {}: {path:?}", expected.raw);
            assert_eq!(path.ordered, expected.ordered, "{features} {}", expected.raw);
            // An outlined instruction needs its arguments in certain registers, and the result moved.
            let max = expected.instructions_max + if features == "+lse" { 0 } else { 16 };
            assert!(path.instructions <= max, "{features} {}: {path:?}", expected.raw);
        }
        let waiting = assembly.contains("\tisb\n") || assembly.contains("\tisb\tsy");
        assert!(waiting, "no ISB between two looks at a word");
    }
}
