//! A mounted file system: what beneath the names and the page cache carries a change out.

use serde::{Deserialize, Serialize};

use super::ext4::Ext4;
use super::xfs::Xfs;
use crate::class::LockClass;
use crate::costs;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::sync::SpinLock;

/// Which file system a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// One spinlock for all that a file system shares.
    #[default]
    Plain,
    /// ext4 with its journal.
    Ext4,
    /// XFS.
    Xfs,
}

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A `write` call: size and times of the inode.
    Write,
    /// A new file or directory.
    Create,
    /// A name goes, and its file with it.
    Remove,
    /// Another name, or one more.
    Rename,
    /// Blocks for pages that had none.
    Allocate,
}

/// A mounted file system.
pub(super) enum Volume<M: Machine> {
    Plain(SpinLock<(), M>),
    Ext4(Ext4<M>),
    Xfs(Xfs<M>),
}

impl<M: Machine> Volume<M> {
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Plain => Volume::Plain(SpinLock::new(LockClass::Journal, ())),
            Format::Ext4 => Volume::Ext4(Ext4::new()),
            Format::Xfs => Volume::Xfs(Xfs::new()),
        }
    }

    /// Carries `change` out, for file number `file` of this volume. May sleep.
    pub(super) fn change(&self, kernel: &Kernel<M>, file: u32, change: Change) {
        match self {
            Volume::Plain(journal) => {
                let on = kernel.on_cpu();
                let _journal = journal.lock(&on);
                on.work(costs::JOURNAL);
            }
            Volume::Ext4(ext4) => ext4.change(kernel, file, change),
            Volume::Xfs(xfs) => xfs.change(kernel, file, change),
        }
    }

    /// Returns when all changes made so far are on the disk. May sleep.
    pub(super) fn force(&self, kernel: &Kernel<M>) {
        match self {
            Volume::Plain(_) => {}
            Volume::Ext4(ext4) => ext4.force(kernel),
            Volume::Xfs(xfs) => xfs.force(kernel),
        }
    }
}
