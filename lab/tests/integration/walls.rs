//! Walls between the files of a package: how large a circle of files that use each other may be, how many fields a
//! structure of the simulator may show, which rooms of the simulator may name which, and in how many files a central
//! type may have methods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// For each package with walls: the largest circle of files, and how many circles there may be.
const CIRCLES: &[(&str, usize, usize)] = &[
    ("abi", 1, 0),
    ("machine", 1, 0),
    ("locks", 2, 1),
    ("host", 8, 6),
    ("platforms/sim", 5, 3),
    ("guest", 1, 0),
    ("workloads", 4, 3),
];

/// Types that everything meets in, and in how many files of their package they may have methods.
const CENTRAL_TYPES: &[(&str, &str, usize)] = &[("host", "Host", 5), ("platforms/sim", "Engine", 17)];

/// The most public fields of a structure in the simulator.
const PUBLIC_FIELDS_MAX: usize = 12;

/// A path in the module tree, without the leading `crate`.
type Module = Vec<String>;

/// The source files of one package and what each takes from the others.
struct Sources {
    /// Each module's file and text, without comments and literals.
    files: BTreeMap<Module, String>,
    /// Names that a module hands on (`pub use`), with the paths where they come from.
    reexports: BTreeMap<Module, BTreeMap<String, Module>>,
    /// Names that a module imports for itself.
    imports: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// One leaf of a `use` tree.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

impl Sources {
    fn read(package: &str) -> Sources {
        let src = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(package)
            .join("src");
        let mut paths = Vec::new();
        list(&src, &mut paths);
        let mut files = BTreeMap::new();
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let relative = path.strip_prefix(&src).expect("listed below src").with_extension("");
            let mut module: Module = relative
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            files.insert(module, plain(product));
        }
        Sources::of(files)
    }

    fn of(files: BTreeMap<Module, String>) -> Sources {
        let mut sources = Sources {
            files,
            reexports: BTreeMap::new(),
            imports: BTreeMap::new(),
        };
        let mut reexports: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
        let mut imports: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
        for (module, text) in &sources.files {
            for import in uses(text) {
                let Some(path) = sources.absolute(module, &import.path) else {
                    continue;
                };
                let table = if import.is_public { &mut reexports } else { &mut imports };
                table.entry(module.clone()).or_default().insert(import.name, path);
            }
        }
        sources.reexports = reexports;
        sources.imports = imports;
        sources
    }

    /// Returns `path` from the package's root, or `None` if it leads out of the package.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut base: Module;
        let mut rest = path;
        match path.first().map(String::as_str)? {
            "crate" => {
                base = Vec::new();
                rest = &rest[1..];
            }
            "self" => {
                base = module.clone();
                rest = &rest[1..];
            }
            "super" => {
                base = module.clone();
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                base = module.clone();
                base.push(first.to_owned());
                if !self.files.contains_key(&base) {
                    return None;
                }
                rest = &rest[1..];
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// Returns the module that defines what `path` names. Imports and re-exports on the way are followed.
    fn definer(&self, path: &Module) -> Module {
        let mut path = path.clone();
        'again: for _ in 0..16 {
            let mut at = Module::new();
            for (index, part) in path.iter().enumerate() {
                let handed_on = [&self.reexports, &self.imports].map(|table| table.get(&at)?.get(part));
                if let [Some(source), _] | [None, Some(source)] = handed_on {
                    let mut next = source.clone();
                    next.extend_from_slice(&path[index + 1..]);
                    if next != path {
                        path = next;
                        continue 'again;
                    }
                }
                let mut deeper = at.clone();
                deeper.push(part.clone());
                if !self.files.contains_key(&deeper) {
                    return at;
                }
                at = deeper;
            }
            return at;
        }
        path
    }

    /// For each module the modules whose definitions it uses.
    fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut edges = BTreeMap::new();
        for (module, text) in &self.files {
            let mut used = BTreeSet::new();
            let body = without_uses(text);
            let words: BTreeSet<&str> = body.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            for path in self.imports.get(module).into_iter().flat_map(BTreeMap::values) {
                if !self.files.contains_key(path) {
                    used.insert(self.definer(path));
                }
            }
            for (name, path) in self.reexports.get(module).into_iter().flatten() {
                if words.contains(name.as_str()) && !self.files.contains_key(path) {
                    used.insert(self.definer(path));
                }
            }
            for path in paths(&body) {
                let local = self.imports.get(module).and_then(|names| names.get(&path[0]));
                let whole = match local {
                    Some(import) => Some(import.iter().chain(&path[1..]).cloned().collect()),
                    None => self.absolute(module, &path),
                };
                if let Some(whole) = whole {
                    used.insert(self.definer(&whole));
                }
            }
            used.remove(module);
            used.retain(|target| self.files.contains_key(target));
            edges.insert(module, used);
        }
        edges
    }

    /// Sets of modules that reach each other, largest first.
    fn circles(&self) -> Vec<Vec<Module>> {
        let edges = self.edges();
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges
            .keys()
            .map(|&start| {
                let mut seen = BTreeSet::new();
                let mut todo = vec![start];
                while let Some(module) = todo.pop() {
                    let next = edges[module].iter().filter(|&module| seen.insert(module));
                    todo.extend(next.collect::<Vec<_>>());
                }
                (start, seen)
            })
            .collect();
        let mut circles: BTreeSet<Vec<Module>> = BTreeSet::new();
        for (&module, seen) in &reach {
            if seen.contains(module) {
                let circle = seen.iter().filter(|&&other| reach[other].contains(module));
                circles.insert(circle.map(|&other| other.clone()).collect());
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

fn list(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().unwrap_or_default();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            list(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The text without comments, and with empty string literals.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            '"' => {
                out.push('"');
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => drop(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                out.push('"');
            }
            '\'' => {
                let mut ahead = chars.clone();
                let is_char = match ahead.next() {
                    Some('\\') => true,
                    Some(_) => ahead.next() == Some('\''),
                    None => false,
                };
                if is_char {
                    if chars.next() == Some('\\') {
                        chars.next();
                    }
                    while chars.next().is_some_and(|c| c != '\'') {}
                }
                out.push(' ');
            }
            _ => out.push(c),
        }
    }
    out
}

/// Start and end of each `use` declaration, and whether it is `pub`.
fn use_spans(text: &str) -> Vec<(usize, usize, bool)> {
    let mut spans = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let visible = trimmed.strip_prefix("pub").map(|rest| {
            let rest = rest
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest);
            rest.trim_start()
        });
        let is_public = visible.is_some_and(|rest| rest.starts_with("use "));
        if is_public || trimmed.starts_with("use ") {
            let end = text[offset..].find(';').map_or(text.len(), |end| offset + end + 1);
            spans.push((offset, end, is_public));
        }
        offset += line.len();
    }
    spans
}

fn without_uses(text: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    for (start, end, _) in use_spans(text) {
        if start >= at {
            out.push_str(&text[at..start]);
            at = end;
        }
    }
    out.push_str(&text[at..]);
    out
}

fn uses(text: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for (start, end, is_public) in use_spans(text) {
        let declaration = &text[start..end];
        let tree = declaration.split_once("use ").map_or("", |(_, tree)| tree);
        let tree: String = tree
            .trim_end_matches(';')
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        leaves(&tree, &[], is_public, &mut imports);
    }
    imports
}

/// Adds the leaves of the `use` tree `tree` below `prefix`.
fn leaves(tree: &str, prefix: &[String], is_public: bool, into: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut below = prefix.to_vec();
        below.extend(
            head.split("::")
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(str::to_owned),
        );
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let mut depth = 0;
        let mut start = 0;
        for (index, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&group[start..index], &below, is_public, into);
                    start = index + 1;
                }
                _ => {}
            }
        }
        leaves(&group[start..], &below, is_public, into);
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (path, alias) = tree
        .split_once(" as ")
        .map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path: Vec<String> = prefix
        .iter()
        .cloned()
        .chain(path.split("::").map(|part| part.trim().to_owned()))
        .collect();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    into.push(Import { path, name, is_public });
}

/// Paths of at least two parts in `body`.
fn paths(body: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let mut path = Vec::new();
        loop {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
            match rest.strip_prefix("::") {
                Some(more) if more.starts_with(is_word) => rest = more,
                _ => break,
            }
        }
        if path.len() > 1 {
            found.push(path);
        }
    }
    found
}

#[test]
fn circles_of_files_stay_small() {
    let mut faults = Vec::new();
    for &(package, files_max, circles_max) in CIRCLES {
        let circles = Sources::read(package).circles();
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        println!("{package}: circles of {sizes:?} files");
        if sizes.len() > circles_max || sizes.first().is_some_and(|&largest| largest > files_max) {
            let names = circles.iter().map(|circle| {
                let names = circle.iter().map(|module| module.join("::"));
                names.collect::<Vec<_>>().join(" ")
            });
            faults.push(format!(
                "{package}: circles of {sizes:?} files, at most {circles_max} of {files_max} may be:\n  {}",
                names.collect::<Vec<_>>().join("\n  ")
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
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
    let sources = Sources::read("platforms/sim");
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

/// How many pairs of rooms of the simulator may know each other, of the 91 that there are.
const PAIRS_MAX: usize = 57;

#[test]
fn rooms_of_the_simulator_name_only_rooms_below_them() {
    let rank = |module: &Module| {
        let room = module.first()?;
        let rank = ROOMS.iter().position(|other| other == room);
        Some(rank.unwrap_or_else(|| panic!("{room} has no place among the rooms")))
    };
    let sources = Sources::read("platforms/sim");
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
fn central_types_have_methods_in_few_files() {
    for &(package, name, files_max) in CENTRAL_TYPES {
        let sources = Sources::read(package);
        let heads = [format!("impl {name} {{"), format!("impl {name} where")];
        let files = sources
            .files
            .iter()
            .filter(|(_, text)| heads.iter().any(|head| text.contains(head)));
        let names: Vec<String> = files.map(|(module, _)| module.join("::")).collect();
        assert!(
            names.len() <= files_max,
            "{name} of {package} has methods in {} files, at most {files_max} may be: {names:?}",
            names.len()
        );
        assert!(!names.is_empty(), "{package} has no type {name}");
    }
}
