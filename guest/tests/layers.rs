//! The kernel's modules are layers: each uses only modules below it.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules, from the lowest to the highest.
const LAYERS: &[&str] = &[
    // Values and the machine's interface.
    "costs",
    "class",
    "profile",
    "lines",
    "local",
    "ids",
    "parameter",
    "policy",
    "lock_name",
    "config",
    "limits",
    "mask",
    "pcid",
    "machine",
    "numa",
    // One CPU.
    "apic",
    "average",
    "haltpoll",
    "word",
    "cpu",
    "seen",
    "features",
    "ipi",
    // Spinlocks and the state under them.
    "sync",
    "rwlock",
    "smp",
    "nmi",
    "task",
    "tlb",
    "pages",
    "measured",
    "driver",
    // Scheduling, and waiting for other tasks and CPUs.
    "sched",
    "wait",
    "time",
    // Sleeping locks.
    "spin",
    "mutex",
    "rwsem",
    "semaphore",
    // Subsystems.
    "mm",
    "net",
    "block",
    "fs",
    "ipc",
    "process",
    // The whole kernel and its users.
    "kernel",
    "handle",
    "report",
    "os",
    "program",
    "interrupt",
    "idle",
    "boot",
    "user",
    "pthread",
    // Policies that are shipped.
    "steal_governor",
    // Benchmarks without a kernel.
    "micro",
];

fn rank(module: &str) -> usize {
    LAYERS
        .iter()
        .position(|layer| *layer == module)
        .unwrap_or_else(|| panic!("module {module} is in no layer"))
}

/// The source files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("read {}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a folder's entry is readable").path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .collect()
}

/// The modules that `text` names as `crate::module`, or in a list `crate::{...}`, outside comments.
fn uses(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let end = rest.find([';', '(']).unwrap_or(rest.len());
        match rest[..end].strip_prefix('{') {
            Some(list) => found.extend(
                list.trim_end_matches('}')
                    .split(',')
                    .map(|name| name.trim().split("::").next().unwrap_or_default().to_owned()),
            ),
            None => found.push(
                rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn each_module_uses_only_those_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for path in sources(&root) {
        let inside = path.strip_prefix(&root).expect("a source is below its root");
        let first = inside.iter().next().expect("a source has a name");
        let module = Path::new(first).with_extension("").display().to_string();
        if module == "lib" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
        for other in uses(&text) {
            seen += 1;
            let is_below = other == module || rank(&other) < rank(&module);
            assert!(is_below, "{} uses {other}, which is above it", inside.display());
        }
    }
    assert!(seen > 200, "only {seen} uses of modules were found");
}
