//! Files that are whole or not there.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Why a file could not be written.
#[derive(Debug)]
pub struct WriteError {
    /// Where it should have gone.
    pub path: PathBuf,
    /// Why not.
    pub error: io::Error,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot write it: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for WriteError {}

/// Writes `bytes` to `path`, which they replace; missing folders are made.
///
/// # Errors
/// What the file system says. Nothing is left behind then, and a file that was there stays.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        // Without this a crash could leave the new name with nothing behind it.
        file.as_file().sync_all()?;
        // Created for its owner only: what we write are ordinary files.
        set_ordinary_permissions(file.as_file())?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| WriteError {
        path: path.to_owned(),
        error,
    })
}

#[cfg(unix)]
fn set_ordinary_permissions(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_ordinary_permissions(_file: &fs::File) -> io::Result<()> {
    Ok(())
}
