//! Files: names, descriptors, the page cache, and the mounted file systems (`volume.rs`).
//!
//! Path lookups are Linux 3.3's RCU walk: no lock on the way, and the lock of the last component to take a reference. A
//! lookup of a name that does not exist takes no lock at all.

mod change;
mod commit;
mod disk;
mod ext4;
mod fetch;
mod files;
mod journal;
mod volume;
mod xfs;

pub use files::FileId;
pub(crate) use files::FileSystem;
