//! The house as ARCHITECTURE.md describes it: which room may use which, and that what it names exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every package with the packages of ours that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("locks", &[]),
    ("machine", &["abi"]),
    ("guest", &["abi", "locks"]),
    ("workloads", &["guest", "locks"]),
    ("host", &["abi"]),
    (
        "platforms/sim",
        &["abi", "guest", "host", "locks", "machine", "workloads"],
    ),
    ("platforms/words", &[]),
    ("platforms/threads", &["locks", "words"]),
    ("platforms/threads/capi", &["locks", "threads"]),
    ("platforms/threads/peers", &[]),
    ("platforms/model", &["abi", "host", "locks", "machine"]),
    ("platforms/kvm", &["abi", "locks", "protocol", "workloads"]),
    ("platforms/kvm/protocol", &["locks", "workloads"]),
    (
        "platforms/kvm/image",
        &["abi", "guest", "locks", "protocol", "words", "workloads"],
    ),
    ("lab", &["host", "locks", "machine", "sim", "workloads"]),
    (
        "real-host",
        &[
            "host",
            "kvm",
            "lab",
            "locks",
            "machine",
            "peers",
            "sim",
            "threads",
            "workloads",
        ],
    ),
    ("cli", &["lab", "real-host"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.expect("the workspace lists its members");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The packages of ours under `[dependencies]`.
fn dependencies(member: &str) -> Vec<String> {
    let manifest = read(&format!("{member}/Cargo.toml"));
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| line.strip_prefix("holdfast-"));
    names
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn rooms_use_only_the_rooms_that_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for member in members() {
        let may = allowed
            .get(member.as_str())
            .unwrap_or_else(|| panic!("{member} is not in the list of rooms"));
        for used in dependencies(&member) {
            assert!(
                may.contains(&used.as_str()),
                "{member} uses {used}: a new edge is a decision, written down"
            );
        }
    }
}

#[test]
fn what_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    for member in members() {
        let last = member.rsplit('/').next().unwrap_or(&member);
        assert!(
            text.contains(&format!("{last}/")),
            "ARCHITECTURE.md does not mention {member}"
        );
    }
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| name.ends_with(".rs") && name.contains('/') && !name.contains(['{', '*', ' ']));
    for path in paths {
        assert!(
            root().join(path).exists(),
            "ARCHITECTURE.md names {path}, which does not exist"
        );
    }
}
