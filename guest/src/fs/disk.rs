//! What files on a disk take besides the page cache's locks: buffers of pages, dirty inodes, names and inodes.
//!
//! Counts and times are measured under Linux 6.1 (`docs/spec/costs.md`). What differs in 3.14: every page has
//! buffers, XFS's too (until 4.19, uncertain). Pages leave the page cache one by one (until 4.15, commit aa65c29ce1b6,
//! uncertain).
//!
//! A plain file system has none of this. Its figures are estimates for everything together.

use core::sync::atomic::Ordering::Relaxed;

use super::commit::Change;
use super::files::{FileId, FileSystem};
use crate::costs;
use crate::limits::Format;
use crate::machine::Machine;
use crate::sched::{OnCpu, Scheduler};

/// Times of files have this resolution: a tick at 1000 Hz (`current_kernel_time`).
const TIME_UNIT: u64 = 1_000_000;
/// Locks of a name that a creation takes: `__d_add`, `d_instantiate`, `dput`.
const NEW_NAME: u32 = 4;
/// Those of a removal: lookup, `vfs_unlink`, `d_delete`.
const OLD_NAME: u32 = 3;
/// Locks of an inode that a creation takes: a new inode, which is unlocked at the end.
const NEW_INODE: u32 = 2;
/// Those of a removal: the last reference, waiting for writeback, eviction.
const OLD_INODE: u32 = 6;
/// XFS's own lock of an inode: in the cache, joined to a transaction, marked.
const FLAGS: u32 = 3;
/// Blocks that XFS allocates at least for a growing file: 64 KiB. Later it allocates as many ahead as the file has.
const AHEAD: u32 = 16;

impl<M: Machine> FileSystem<M> {
    pub(super) fn is_disk(&self) -> bool {
        self.format != Format::Plain
    }

    /// A page without a block was added to the page cache of `id` and written.
    pub(super) fn page_added(&self, on: &OnCpu<'_, M>, id: FileId) {
        let file = self.get(id);
        for _ in 0..2 {
            file.disk.buffers.hold(on, costs::PAGE_BUFFERS);
        }
        if self.format == Format::Ext4 {
            file.inode.hold(on, costs::RESERVATION);
            file.disk.own.hold(on, costs::RESERVATION);
        }
        // The tag of a dirty page.
        file.cache.hold_irq(on, costs::PAGE_CACHE_INSERT);
    }

    /// A page in the page cache of `id` was written.
    pub(super) fn page_written(&self, on: &OnCpu<'_, M>, id: FileId) {
        self.get(id).disk.buffers.hold(on, costs::PAGE_BUFFERS);
    }

    /// `count` pages leave the page cache of `id`.
    pub(super) fn pages_removed(&self, on: &OnCpu<'_, M>, id: FileId, count: u32) {
        let file = self.get(id);
        for _ in 0..count {
            file.disk.buffers.hold(on, costs::PAGE_BUFFERS);
            file.cache.hold_irq(on, costs::PAGE_CACHE_INSERT);
        }
    }

    /// A write call of `pages` pages ends, after which the file is longer if it `grows`. The caller holds the mutex of
    /// `id`: the inode's size and times, and its place on the list of dirty inodes.
    pub(super) fn inode_written(&self, sched: &Scheduler<M>, id: FileId, pages: u32, grows: bool) {
        let (on, file) = (sched.on_cpu(), self.get(id));
        let now = on.now() / TIME_UNIT;
        let is_later = file.disk.changed.get() != now;
        file.disk.changed.set(now);
        // ORDERING: Relaxed: plain memory under the file's mutex.
        if file.disk.dirty.swap(1, Relaxed) == 0 {
            let _inode = file.inode.lock(&on);
            self.dirty_inodes(id).hold(&on, costs::DIRTY_INODE);
        }
        if is_later {
            self.change(sched, id, Change::Write);
        }
        // ext4 begins a handle for each page, and keeps the size on the disk in step. XFS changes it when blocks are
        // written.
        if self.format == Format::Ext4 {
            let change = if grows { Change::Write } else { Change::Overwrite };
            for _ in 0..pages {
                self.change(sched, id, change);
            }
        }
    }

    /// Pages of `id` that have no blocks yet.
    pub(super) fn pages_without_blocks(&self, id: FileId) -> u32 {
        let file = self.get(id);
        // ORDERING: Relaxed, both: plain memory under the file's mutex.
        file.cached.load(Relaxed).saturating_sub(file.disk.blocks.load(Relaxed))
    }

    /// What writing the pages of `id` to the disk changes. The caller holds the file's mutex.
    pub(super) fn blocks_needed(&self, id: FileId) -> Change {
        let file = self.get(id);
        // ORDERING: Relaxed: plain memory under the file's mutex.
        let cached = file.cached.load(Relaxed);
        if cached <= file.disk.blocks.load(Relaxed) {
            return Change::Written;
        }
        let allocated = match self.format {
            Format::Xfs => (2 * cached).max(AHEAD),
            Format::Ext4 | Format::Plain => cached,
        };
        file.disk.blocks.store(allocated, Relaxed);
        Change::Allocate
    }

    /// A new file `id` in `directory`, whose mutex the caller holds.
    pub(super) fn disk_create(&self, on: &OnCpu<'_, M>, directory: FileId, id: FileId) {
        let file = self.get(id);
        file.disk.directory.store(self.volume(directory).1, Relaxed);
        self.take(on, id, NEW_NAME, NEW_INODE);
        if self.format == Format::Ext4 {
            self.hash.hold(on, costs::INODE_HASH);
        }
        file.disk.changed.set(on.now() / TIME_UNIT);
    }

    /// The last name and the last reference of `id` are gone.
    pub(super) fn disk_remove(&self, on: &OnCpu<'_, M>, id: FileId) {
        self.take(on, id, OLD_NAME, OLD_INODE);
        if self.get(id).disk.dirty.swap(0, Relaxed) != 0 {
            self.dirty_inodes(id).hold(on, costs::DIRTY_INODE);
        }
        if self.format == Format::Ext4 {
            self.hash.hold(on, costs::INODE_HASH);
        }
    }

    /// Takes the locks of the name and the inode of `id` so many times.
    fn take(&self, on: &OnCpu<'_, M>, id: FileId, names: u32, inodes: u32) {
        let file = self.get(id);
        for _ in 0..names {
            file.dentry.hold(on, costs::FLAG);
        }
        for _ in 0..inodes {
            file.inode.hold(on, costs::FLAG);
        }
        if self.format == Format::Xfs {
            for _ in 0..FLAGS {
                file.disk.own.hold(on, costs::FLAG);
            }
        }
    }
}
