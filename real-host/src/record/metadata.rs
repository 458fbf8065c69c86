//! What trace.dat says of the kernel: layouts of pages and events, and names of threads.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use holdfast_trace_dat::write::{Metadata, TRACE_CLOCK, TRACE_ID, UNAME, VERSION};

use super::instance::Instance;
use super::machine::RecordError;

/// Key of the page size in the auxiliary vector (`AT_PAGESZ`, include/uapi/linux/auxvec.h).
const AT_PAGESZ: u64 = 6;
/// Largest page of a ring buffer in bytes (kernel documentation, `buffer_subbuf_size_kb`), and more.
const PAGE_MAX: usize = 4 << 20;
/// Limit on the number of threads whose names are listed.
const NAMES_MAX: usize = 1 << 20;

/// Reads the metadata of the kernel below `root`, with the layouts of those of `events` that it has. The layouts are
/// those of `instance`, whose buffer can have pages of another size than other tracing.
pub(super) fn read<'e>(
    root: &Path,
    instance: &Instance,
    events: impl Iterator<Item = &'e &'e str>,
) -> Result<Metadata, RecordError> {
    let mut systems: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for event in events {
        let (system, _) = event.split_once('/').unwrap_or((event, ""));
        if let Ok(format) = instance.get(&format!("events/{event}/format")) {
            systems.entry(system).or_default().push(format);
        }
    }
    let own = instance.list("events/ftrace");
    let own = own
        .iter()
        .filter_map(|event| instance.get(&format!("events/ftrace/{event}/format")).ok());
    // Without the node's name, which says nothing about the recording.
    let name = format!("Linux localhost {} {}", release(root), std::env::consts::ARCH);
    let version = format!("holdfast {}", env!("CARGO_PKG_VERSION"));
    let id = RandomState::new().hash_one(std::process::id());
    Ok(Metadata {
        long_size: size_of::<usize>() as u8,
        page_size: page_size(root),
        header_page: instance.get("events/header_page")?,
        header_event: instance.get("events/header_event")?,
        ftrace_formats: own.collect(),
        systems: systems
            .into_iter()
            .map(|(name, formats)| (name.to_owned(), formats))
            .collect(),
        symbols: Vec::new(),
        printk_formats: Vec::new(),
        command_names: Vec::new(),
        options: vec![
            (TRACE_CLOCK, instance.get("trace_clock")?),
            (UNAME, name.into_bytes()),
            (VERSION, version.into_bytes()),
            (TRACE_ID, id.to_le_bytes().to_vec()),
        ],
    })
}

/// Returns the release of the kernel below `root`.
pub(super) fn release(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// Returns the size of the machine's pages in bytes.
fn page_size(root: &Path) -> u32 {
    let pairs = fs::read(root.join("proc/self/auxv")).unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    let size = pairs
        .chunks_exact(16)
        .find(|pair| word(&pair[..8]) == AT_PAGESZ)
        .and_then(|pair| u32::try_from(word(&pair[8..])).ok());
    size.filter(|size| size.is_power_of_two() && *size >= 4096)
        .unwrap_or(4096)
}

/// Returns the bytes of a page of the ring buffer as `header_page` says: its last field is the data. Returns `None` if
/// it cannot be.
pub(super) fn bytes_of_page(header_page: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(header_page);
    let line = text.lines().find(|line| line.contains(" data;"))?;
    let figure = |name: &str| line.split_once(name)?.1.split(';').next()?.trim().parse::<usize>().ok();
    let bytes = figure("offset:")?.checked_add(figure("size:")?)?;
    (bytes.is_multiple_of(8) && (64..=PAGE_MAX).contains(&bytes)).then_some(bytes)
}

/// Returns lines with ID and name of threads: those in `kept` by the kernel, and those that exist below `root`.
pub(super) fn command_names(root: &Path, kept: Vec<u8>) -> Vec<u8> {
    let mut names: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for line in kept.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b' ');
        if let (Some(id), Some(name)) = (parts.next().and_then(number), parts.next()) {
            names.insert(id, name.to_vec());
        }
    }
    let processes = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let processes = processes.filter(|entry| number(entry.file_name().as_encoded_bytes()).is_some());
    for process in processes {
        for thread in fs::read_dir(process.path().join("task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let id = number(thread.file_name().as_encoded_bytes());
            let name = fs::read(thread.path().join("comm"));
            if let (Some(id), Ok(mut name)) = (id, name) {
                name.truncate(name.trim_ascii_end().len().min(64));
                // A line ends the name.
                name.iter_mut()
                    .filter(|byte| byte.is_ascii_control())
                    .for_each(|byte| *byte = b'?');
                names.insert(id, name);
            }
        }
        if names.len() > NAMES_MAX {
            break;
        }
    }
    let mut lines = Vec::new();
    for (id, name) in names {
        lines.extend(id.to_string().bytes());
        lines.push(b' ');
        lines.extend(name);
        lines.push(b'\n');
    }
    lines
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
