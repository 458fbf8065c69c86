//! Small files of a machine, beneath a root directory.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// More than any file has that is looked at here.
const BYTES_MAX: u64 = 1 << 20;

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// Those beneath `root`.
    pub fn new(root: &Path) -> Files {
        Files {
            root: root.to_path_buf(),
        }
    }

    /// Where `path`, absolute as on the machine itself, is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether there is a file or directory at `path`.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Whether what is at `path` can be opened for writing. Nothing is written.
    pub fn writable(&self, path: &str) -> bool {
        OpenOptions::new().write(true).open(self.path(path)).is_ok()
    }

    /// The text at `path`, without spaces at either end; `None` if it cannot be read. What is no UTF-8 is replaced.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The whole number at `path`.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The switch at `path`, as the kernel writes them.
    pub fn switch(&self, path: &str) -> Option<bool> {
        match self.text(path)?.as_str() {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// What is at `path`, in a line fit for a table.
    pub fn shown(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let line: String = text
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .take(120)
            .collect();
        Some(line)
    }

    /// Names of what is in the directory at `path`, sorted.
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
