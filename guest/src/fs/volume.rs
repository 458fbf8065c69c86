//! A mounted file system: carries out the changes that files and directories need below the page cache.

use super::commit::Change;
use super::ext4::Ext4;
use super::xfs::Xfs;
use crate::class::LockClass;
use crate::costs;
use crate::limits::Format;
use crate::machine::Machine;
use crate::sched::Scheduler;
use crate::sync::SpinLock;

/// A mounted file system.
pub(super) enum Volume<M: Machine> {
    Plain(SpinLock<(), M>),
    Ext4(Ext4<M>),
    Xfs(Xfs<M>),
}

impl<M: Machine> Volume<M> {
    pub(super) fn new(format: Format, files: u32) -> Self {
        match format {
            Format::Plain => Volume::Plain(SpinLock::new(LockClass::Journal, ())),
            Format::Ext4 => Volume::Ext4(Ext4::new(files)),
            Format::Xfs => Volume::Xfs(Xfs::new()),
        }
    }

    /// Carries out `change` of file number `file` of this volume, which is in directory number `directory`. May sleep.
    pub(super) fn change(&self, sched: &Scheduler<M>, directory: u32, file: u32, change: Change) {
        match self {
            Volume::Plain(journal) => {
                let on = sched.on_cpu();
                journal.hold(&on, costs::JOURNAL);
            }
            Volume::Ext4(ext4) => ext4.change(sched, directory, file, change),
            Volume::Xfs(xfs) => xfs.change(sched, directory, change),
        }
    }

    /// Returns when all changes made so far are on the disk. May sleep.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        match self {
            Volume::Plain(_) => {}
            Volume::Ext4(ext4) => ext4.force(sched),
            Volume::Xfs(xfs) => xfs.force(sched),
        }
    }
}
