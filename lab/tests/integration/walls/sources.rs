//! The source files of a package, read without a compiler: modules, what they import and hand on, and the types for
//! which they have `impl` blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A path in the module tree, without the leading `crate`.
pub type Module = Vec<String>;

/// The source files of one package and what each takes from the others.
pub struct Sources {
    /// Each module's file and text, without comments and literals.
    pub files: BTreeMap<Module, String>,
    /// Names that a module hands on (`pub use`), with the paths where they come from.
    reexports: BTreeMap<Module, BTreeMap<String, Module>>,
    /// Names that a module imports for itself.
    pub imports: BTreeMap<Module, BTreeMap<String, Module>>,
    /// Modules of which a module takes or hands on all names (`use path::*`).
    globs: BTreeMap<Module, BTreeSet<Module>>,
}

/// One leaf of a `use` tree.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

impl Sources {
    /// Reads the package in `folder`.
    pub fn read(folder: &Path) -> Sources {
        let src = folder.join("src");
        let mut paths = Vec::new();
        list(&src, &mut paths);
        let has_lib = src.join("lib.rs").exists();
        let mut files = BTreeMap::new();
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let relative = path.strip_prefix(&src).expect("listed below src").with_extension("");
            let mut module: Module = relative
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let is_parent = match module.last().map(String::as_str) {
                Some("mod" | "lib") => true,
                // Next to a library, the program is a file that uses it.
                Some("main") => !has_lib,
                _ => false,
            };
            if is_parent {
                module.pop();
            }
            files.insert(module, plain(product(&text)));
        }
        Sources::of(files)
    }

    pub fn of(files: BTreeMap<Module, String>) -> Sources {
        let mut sources = Sources {
            files,
            reexports: BTreeMap::new(),
            imports: BTreeMap::new(),
            globs: BTreeMap::new(),
        };
        let mut reexports: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
        let mut imports: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
        let mut globs: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, text) in &sources.files {
            for import in uses(text) {
                let Some(mut path) = sources.absolute(module, &import.path) else {
                    continue;
                };
                if import.name == "*" {
                    path.pop();
                    globs.entry(module.clone()).or_default().insert(path);
                    continue;
                }
                let table = if import.is_public { &mut reexports } else { &mut imports };
                table.entry(module.clone()).or_default().insert(import.name, path);
            }
        }
        sources.reexports = reexports;
        sources.imports = imports;
        sources.globs = globs;
        sources
    }

    /// Returns `path` from the package's root, or `None` if it leads out of the package.
    pub fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
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
    pub fn definer(&self, path: &Module) -> Module {
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
    pub fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut edges = BTreeMap::new();
        for (module, text) in &self.files {
            let mut used = self.globs.get(module).cloned().unwrap_or_default();
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
    pub fn circles(&self) -> Vec<Vec<Module>> {
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

/// The text before the module of tests.
fn product(text: &str) -> &str {
    let mut offset = 0;
    let mut before = "";
    for line in text.split_inclusive('\n') {
        if before.starts_with("#[cfg(") && before.contains("test") && line.trim_end().ends_with("mod tests {") {
            return &text[..offset - before.len()];
        }
        offset += line.len();
        before = line;
    }
    text
}

/// The text without comments, and with empty string literals.
pub fn plain(text: &str) -> String {
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

/// Returns the types for which `text` has `impl` blocks, as it names them.
pub fn implemented(text: &str) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    for line in text.lines() {
        let Some(rest) = line.trim_start().strip_prefix("impl") else {
            continue;
        };
        let rest = match rest.strip_prefix('<') {
            Some(parameters) => parameters.get(closing(parameters)..).unwrap_or_default(),
            None if rest.starts_with(' ') => rest,
            None => continue,
        };
        let subject = rest.split_once(" for ").map_or(rest, |(_, subject)| subject);
        let name: String = subject
            .trim_start()
            .chars()
            .take_while(|&c| c.is_alphanumeric() || c == '_' || c == ':')
            .collect();
        // Type parameters are a letter.
        if name.len() > 1 {
            types.insert(name);
        }
    }
    types
}

/// Returns the index after the `>` that closes a list of parameters.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let mut before = ' ';
    for (index, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
        before = c;
    }
    text.len()
}
