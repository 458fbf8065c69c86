//! Small files of a machine, below a root directory.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Limit on what is read of a file: more than any file that the doctor reads.
const BYTES_MAX: u64 = 1 << 20;

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// Creates the files below `root`.
    pub fn new(root: &Path) -> Files {
        Files {
            root: root.to_path_buf(),
        }
    }

    /// Returns the location of `path`, which is absolute as on the machine itself.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns whether there is a file or directory at `path`.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns whether the file at `path` can be opened for writing. Nothing is written.
    pub fn writable(&self, path: &str) -> bool {
        OpenOptions::new().write(true).open(self.path(path)).is_ok()
    }

    /// Returns the text at `path`, trimmed, or `None` if it cannot be read. Bytes that are not UTF-8 are replaced.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the whole number at `path`, or `None` if there is none.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the switch at `path` in one of the forms that the kernel writes, or `None`.
    pub fn switch(&self, path: &str) -> Option<bool> {
        match self.text(path)?.as_str() {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// Returns the text at `path` as one line that fits into a table.
    pub fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let line: String = text
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .take(120)
            .collect();
        Some(line)
    }

    /// Returns the names in the directory at `path`, sorted.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}
