//! Copies of files of the kernel.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Limit on what is read of a file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Returns the text of the file at `path`, if it is one that can be read.
pub(super) fn text(path: &Path) -> Option<String> {
    // The open of a pipe would wait for a writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
