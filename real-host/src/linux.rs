//! Kernels for stock Linux guests.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_kvm::{BzImage, BzImageError};
pub use holdfast_kvm::{KernelPath, Linux};
use holdfast_lab::file;

/// Size limit in bytes: more than any distribution's kernel.
const BYTES_MAX: u64 = 256 << 20;

/// Error of a kernel that cannot be booted.
#[derive(Debug)]
pub enum KernelError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file is not a kernel that can be booted.
    Unusable(PathBuf, BzImageError),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::Unreadable(file, error) => write!(f, "{}: cannot read it: {error}", file.display()),
            KernelError::Unusable(file, error) => write!(f, "{}: {error}", file.display()),
        }
    }
}

impl std::error::Error for KernelError {}

/// Returns the path where distributions keep the running kernel.
fn own() -> PathBuf {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    PathBuf::from(format!("/boot/vmlinuz-{}", release.trim()))
}

/// Reads the kernel in the file `image`, or this host's own.
///
/// # Errors
/// [`KernelError`].
pub fn read(image: Option<&Path>, path: KernelPath) -> Result<Linux, KernelError> {
    let image = image.map_or_else(own, Path::to_owned);
    match file::read(&image, BYTES_MAX).map(BzImage::parse) {
        Err(error) => Err(KernelError::Unreadable(image, error)),
        Ok(Err(error)) => Err(KernelError::Unusable(image, error)),
        Ok(Ok(kernel)) => Ok(Linux {
            path,
            ..Linux::new(Arc::new(kernel))
        }),
    }
}
