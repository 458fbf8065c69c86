//! What users of packages find in them, and which licenses their dependencies have.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::house::{read, root};

/// The folders of the crates that programs, kernels and hypervisors embed.
const PUBLISHED: &[&str] = &[
    "abi",
    "locks",
    "programs/holdfast",
    "locks/words",
    "programs/threads",
    "recordings/trace-dat",
];

/// Returns all packages that a build for Linux needs, as Cargo describes them.
fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    let said = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{said}");
    let mut metadata: Value = serde_json::from_slice(&metadata.stdout).expect("cargo writes JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("cargo lists no packages: {other}"),
    }
}

/// Returns the published packages with their folders.
fn published() -> Vec<(&'static str, Value)> {
    let root = root().canonicalize().expect("the repository exists");
    let all = packages();
    let find = |folder: &&'static str| {
        let manifest = root.join(folder).join("Cargo.toml");
        let is_it = |package: &&Value| package["manifest_path"].as_str() == manifest.to_str();
        (
            *folder,
            all.iter().find(is_it).expect("a member of the workspace").clone(),
        )
    };
    PUBLISHED.iter().map(find).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn a_published_package_says_what_it_is_and_contains_its_documents() {
    for (folder, package) in published() {
        let (name, version) = (text(&package, "name"), text(&package, "version"));
        assert!(package["publish"].is_null(), "{name} cannot be published");
        for key in ["description", "readme", "license", "rust_version"] {
            assert!(!text(&package, key).is_empty(), "{name}: {key}");
        }
        for list in ["keywords", "categories"] {
            let length = package[list].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&length), "{name}: {length} {list}");
        }
        assert!(
            package["metadata"]["docs"]["rs"].is_object(),
            "{name}: what docs.rs builds"
        );
        // A link is packaged as the file that it names.
        for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(read(&format!("{folder}/{license}")), read(license), "{name}: {license}");
        }
        assert!(read(&format!("{folder}/README.md")).starts_with(&format!("# {name}\n")));
        let changes = read(&format!("{folder}/CHANGELOG.md"));
        let section = format!("\n## {version} ");
        assert!(
            changes.contains(&section),
            "{folder}/CHANGELOG.md has no section {version}"
        );
    }
}

/// A registry takes no package that depends on a path, or on a package that it has not.
#[test]
fn a_published_package_depends_on_published_ones_of_its_version() {
    let published = published();
    for (_, package) in &published {
        let dependencies = package["dependencies"].as_array().expect("a list");
        // Cargo leaves dependencies without a version out of a package if only tests need them.
        let ours = dependencies
            .iter()
            .filter(|used| used["path"].is_string() && used["kind"].is_null());
        for used in ours {
            let (name, requirement) = (text(package, "name"), text(used, "req"));
            let known = published.iter().find(|(_, other)| other["name"] == used["name"]);
            let Some((_, known)) = known else {
                panic!("{name} needs {}, which is not published", used["name"]);
            };
            assert_eq!(
                requirement,
                format!("^{}", text(known, "version")),
                "{name} needs {}",
                used["name"]
            );
        }
    }
}

/// Returns whether `terms`, a license expression, allows use under some of `allowed`.
fn is_allowed(terms: &str, allowed: &BTreeSet<&str>) -> bool {
    // Old manifests have a slash instead of OR. AND joins groups of choices in all expressions here.
    let terms = terms.replace('/', " OR ").replace(['(', ')'], "");
    let mut groups = terms.split(" AND ");
    groups.all(|group| group.split(" OR ").any(|term| allowed.contains(term.trim())))
}

/// `cargo deny` checks the same, and more; but it is not installed everywhere.
#[test]
fn the_licenses_of_all_dependencies_are_allowed() {
    let deny = read("deny.toml");
    let list = deny
        .split_once("\nallow = [")
        .and_then(|(_, rest)| rest.split_once("\n]"));
    let (list, _) = list.expect("deny.toml lists licenses");
    let allowed: BTreeSet<&str> = list.lines().filter_map(|line| line.trim().split('"').nth(1)).collect();
    for package in packages().iter().filter(|package| package["source"].is_string()) {
        let terms = text(package, "license");
        assert!(
            is_allowed(terms, &allowed),
            "{} has the license {terms:?}",
            package["name"]
        );
    }
    assert!(is_allowed("(MIT OR GPL-2.0-only) AND Unicode-3.0", &allowed));
    assert!(!is_allowed("MIT AND GPL-2.0-only", &allowed));
    assert!(!is_allowed("", &allowed));
}
