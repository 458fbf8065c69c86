//! Walls between the files of each package of the workspace: how large a circle of files that use each other may be, in
//! how many files a type may have `impl` blocks, how many fields a structure of the simulator may show, and which rooms
//! of the simulator may name which.
//!
//! Exceptions are pinned, and can only shrink: a number that is smaller than its row is a fault, too, until the row
//! has it.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::house::{members, read, root};
use sources::{Module, Sources, implemented, plain};

/// Packages with circles of files, and the sizes of these circles, largest first. All others have none.
const CIRCLES: &[(&str, &[usize])] = &[
    ("holdfast", &[3, 2]),
    ("holdfast-capi", &[4]),
    ("holdfast-cli", &[4]),
    ("holdfast-host", &[4, 3, 2, 2]),
    ("holdfast-image", &[2]),
    ("holdfast-kvm", &[4, 4]),
    ("holdfast-lab", &[6, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
    ("holdfast-locks", &[2]),
    ("holdfast-model", &[2]),
    ("holdfast-real-host", &[3]),
    ("holdfast-sim", &[4, 3, 2]),
    // A thread that sleeps first gives up its claim on time and its sequence, and these look at the clock. What all
    // need is found when the code is loaded, in the same circle, so that it is linked wherever a lock is.
    ("holdfast-threads", &[15]),
    ("holdfast-workloads", &[4, 2, 2]),
];

/// In how many files of its package a type may have `impl` blocks.
const FILES_MAX: usize = 8;

/// Types that have `impl` blocks in more files, and in how many.
const CENTRAL_TYPES: &[(&str, &str, usize)] = &[("holdfast-sim", "Engine", 15)];

/// The most public fields of a structure in the simulator.
const PUBLIC_FIELDS_MAX: usize = 12;

/// Returns the packages of the workspace: name and folder.
fn packages() -> BTreeMap<String, PathBuf> {
    let named = |member: String| {
        let manifest = read(&format!("{member}/Cargo.toml"));
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
        let name = name
            .unwrap_or_else(|| panic!("{member} has no name"))
            .trim_end_matches('"');
        (name.to_owned(), root().join(&member))
    };
    members().into_iter().map(named).collect()
}

/// Returns what is wrong with a ratchet: `pinned` rows that are exceeded, and those that are too generous.
fn compare<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    pinned: &BTreeMap<K, V>,
    found: &BTreeMap<K, V>,
) -> Vec<String> {
    let keys: BTreeSet<&K> = pinned.keys().chain(found.keys()).collect();
    let differing = keys.into_iter().filter(|key| pinned.get(key) != found.get(key));
    differing
        .map(|key| format!("{key:?}: found {:?}, pinned {:?}", found.get(key), pinned.get(key)))
        .collect()
}

#[test]
fn circles_of_files_stay_small() {
    let (mut found, mut names) = (BTreeMap::new(), String::new());
    for (package, folder) in packages() {
        let circles = Sources::read(&folder).circles();
        if circles.is_empty() {
            continue;
        }
        for circle in &circles {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            let _ = writeln!(names, "  {package}: {}", files.join(" "));
        }
        found.insert(package, circles.iter().map(Vec::len).collect());
    }
    let pinned: BTreeMap<String, Vec<usize>> = CIRCLES
        .iter()
        .map(|(package, sizes)| ((*package).to_owned(), sizes.to_vec()))
        .collect();
    let faults = compare(&pinned, &found);
    assert!(
        faults.is_empty(),
        "circles of files that use each other; a larger one is a fault, and for a smaller one the row gets its \
         size:\n{}\n{names}",
        faults.join("\n")
    );
}

#[test]
fn a_circle_is_found_through_re_exports_and_paths() {
    let file = |name: &str, text: &str| (name.split("::").map(str::to_owned).collect::<Module>(), plain(text));
    let sources = Sources::of(BTreeMap::from([
        (Vec::new(), "mod a; mod b; pub use b::low::Low;".to_owned()),
        file("a", "use crate::{b, Low}; // crate::c\nfn f(_: Low) { b::g() }"),
        file("b", "mod low;\nfn g() { super::c::h(\"crate::a\") }"),
        file("b::low", "pub struct Low;"),
        file("c", "fn h(_: &str) { crate::a::f(crate::Low) }"),
    ]));
    let circles = sources.circles();
    assert_eq!(circles, [[["a"], ["b"], ["c"]]], "b::low uses no other file");
}

#[test]
fn structures_of_the_simulator_show_few_fields() {
    let sources = Sources::read(&packages()["holdfast-sim"]);
    let mut faults = Vec::new();
    for (module, text) in &sources.files {
        for part in text.split("pub struct ").skip(1) {
            let name = part.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            let Some((head, body)) = part.split_once('{') else {
                continue;
            };
            if head.contains(';') {
                continue;
            }
            let body = body.split("\n}").next().unwrap_or_default();
            let count = body
                .lines()
                .filter(|line| line.trim_start().starts_with("pub "))
                .count();
            if count > PUBLIC_FIELDS_MAX {
                faults.push(format!("{}::{name} has {count} public fields", module.join("::")));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "at most {PUBLIC_FIELDS_MAX} public fields:\n{}",
        faults.join("\n")
    );
}

/// The rooms of the simulator, from below.
const ROOMS: &[&str] = &[
    "core",
    "memory",
    "stacks",
    "network",
    "parts",
    "migration",
    "config",
    "tasks",
    "books",
    "engine",
    "events",
    "flows",
    "guests",
    "nested",
    "run",
];

/// How many pairs of rooms of the simulator may know each other, of the 105 that there are.
const PAIRS_MAX: usize = 59;

#[test]
fn rooms_of_the_simulator_name_only_rooms_below_them() {
    let rank = |module: &Module| {
        let room = module.first()?;
        let rank = ROOMS.iter().position(|other| other == room);
        Some(rank.unwrap_or_else(|| panic!("{room} has no place among the rooms")))
    };
    let sources = Sources::read(&root().join("platforms/sim"));
    let (mut pairs, mut faults) = (BTreeSet::new(), Vec::new());
    for (module, used) in sources.edges() {
        for other in &used {
            let (Some(from), Some(to)) = (rank(module), rank(other)) else {
                continue;
            };
            if to > from {
                faults.push(format!("{} names {}", module.join("::"), other.join("::")));
            } else if to < from {
                pairs.insert((to, from));
            }
        }
    }
    let all = ROOMS.len() * (ROOMS.len() - 1) / 2;
    println!("platforms/sim: {} of {all} pairs of rooms know each other", pairs.len());
    assert!(faults.is_empty(), "rooms above are named:\n{}", faults.join("\n"));
    assert!(
        pairs.len() <= PAIRS_MAX,
        "{} pairs of rooms know each other",
        pairs.len()
    );
}

#[test]
fn types_have_methods_in_few_files() {
    let (mut found, mut names) = (BTreeMap::new(), String::new());
    for (package, folder) in packages() {
        let sources = Sources::read(&folder);
        let mut files: BTreeMap<(Module, String), Vec<String>> = BTreeMap::new();
        for (module, text) in &sources.files {
            for name in implemented(text) {
                let path: Vec<String> = name.split("::").map(str::to_owned).collect();
                let imported = sources.imports.get(module).and_then(|names| names.get(&path[0]));
                let home = match imported {
                    Some(import) => sources.definer(&import.iter().chain(&path[1..]).cloned().collect()),
                    None => sources
                        .absolute(module, &path)
                        .map_or_else(|| module.clone(), |path| sources.definer(&path)),
                };
                let name = path.last().cloned().unwrap_or_default();
                files.entry((home, name)).or_default().push(module.join("::"));
            }
        }
        for ((_, name), files) in files.into_iter().filter(|(_, files)| files.len() > FILES_MAX) {
            let _ = writeln!(names, "  {package}: {name} in {}", files.join(" "));
            found.insert((package.clone(), name), files.len());
        }
    }
    let pinned: BTreeMap<(String, String), usize> = CENTRAL_TYPES
        .iter()
        .map(|(package, name, files)| (((*package).to_owned(), (*name).to_owned()), *files))
        .collect();
    let faults = compare(&pinned, &found);
    assert!(
        faults.is_empty(),
        "types with impl blocks in more than {FILES_MAX} files; a larger number is a fault, and for a smaller one the row \
         gets it:\n{}\n{names}",
        faults.join("\n")
    );
}

#[test]
fn impl_blocks_are_found_with_parameters_and_traits() {
    let text = "impl Host {\nimpl<'a, F: Fn(u32) -> Option<u8>> Os<'a, F> where\n impl fmt::Display for crate::Word {\nimpl<T> X for T {\n\
                implicit!(a)\nimpl<K> From<Vec<K>> for Lock {";
    let found: Vec<String> = implemented(text).into_iter().collect();
    assert_eq!(found, ["Host", "Lock", "Os", "crate::Word"]);
}
