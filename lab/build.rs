//! The documentation of the keys: the first paragraph of the doc comment of each field that a key sets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Files and folders with the fields. If two structs have one name, the first one's documentation counts.
const SOURCES: [&str; 15] = [
    "guest/src/config.rs",
    "host/src/config.rs",
    "host/src/interrupts/apicv/config.rs",
    "host/src/interrupts/avic/config.rs",
    "host/src/pause/config.rs",
    "host/src/sched",
    "lab/src/draft.rs",
    "lab/src/draft/disk.rs",
    "lab/src/groups.rs",
    "lab/src/draft/migration.rs",
    "lab/src/profile.rs",
    "machine/src/profile.rs",
    "machine/src/topology.rs",
    "platforms/sim/src/config.rs",
    "workloads/src",
];

fn main() {
    let mut fields = BTreeMap::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../{source}");
        read(&Path::new("..").join(source), &mut fields);
    }
    let mut table = String::from("&[\n");
    for ((container, field), (kind, doc)) in &fields {
        let _ = writeln!(table, "    ({container:?}, {field:?}, {kind:?}, {doc:?}),");
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR for a build script");
    fs::write(Path::new(&out).join("fields.rs"), table).expect("OUT_DIR is writable");
}

/// Adds the fields in `path` by struct and name, each with its type and documentation.
fn read(path: &Path, fields: &mut BTreeMap<(String, String), (String, String)>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder of sources is readable");
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort_unstable();
        return paths.iter().for_each(|path| read(path, fields));
    }
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut containers, mut doc): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words = line.trim();
        if let Some(words) = words.strip_prefix("///") {
            doc.push(words.trim());
            continue;
        }
        if words.starts_with("#[") {
            continue;
        }
        let words = words.strip_prefix("pub ").unwrap_or(words);
        if line.starts_with('}') {
            containers.clear();
        } else if words.starts_with('}') {
            containers.pop();
        } else if let Some(container) = words.strip_suffix(" {") {
            containers.extend(container.rsplit(' ').next());
        } else if let (Some((field, kind)), Some(container), false) = (
            words.strip_suffix(',').and_then(|words| words.split_once(": ")),
            containers.last(),
            doc.is_empty(),
        ) {
            let paragraph: Vec<&str> = doc.iter().copied().take_while(|line| !line.is_empty()).collect();
            let kind = kind.rsplit("::").next().unwrap_or_default();
            fields
                .entry(((*container).to_owned(), field.to_owned()))
                .or_insert((kind.to_owned(), paragraph.join(" ")));
        }
        doc.clear();
    }
}
