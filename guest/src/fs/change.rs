//! Changing files and directories.

use super::commit::Change;
use super::files::{FileId, FileSystem, walk};
use crate::costs;
use crate::machine::Machine;
use crate::pages::batches;
use crate::sched::Scheduler;
use crate::time::queue_callback;

impl<M: Machine> FileSystem<M> {
    /// Appends `pages` pages.
    pub(crate) fn write(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        file.mutex.lock(sched);
        let on = sched.on_cpu();
        for _ in 0..pages {
            on.work(costs::WRITE_PAGE);
            on.sched.memory.take_page(&on);
            {
                let mut cached = file.cache.lock_irq(&on);
                *cached += 1;
                on.work(costs::PAGE_CACHE_INSERT);
            }
            on.sched.memory.lru_add(&on);
        }
        self.finish_write(sched, id);
    }

    /// Writes `pages` pages that the page cache has.
    pub(crate) fn overwrite(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        file.mutex.lock(sched);
        sched.on_cpu().work(costs::WRITE_PAGE * u64::from(pages));
        self.finish_write(sched, id);
    }

    /// Ends a write: changes the inode, and releases the file's mutex, which the caller holds.
    fn finish_write(&self, sched: &Scheduler<M>, id: FileId) {
        self.change(sched, id, Change::Write);
        let (on, file) = (sched.on_cpu(), self.get(id));
        file.inode.hold(&on, costs::INODE);
        file.mutex.unlock(&on);
    }

    /// Puts `pages` pages that were written, and all changes of the volume up to now, on the disk (fsync). The disk is
    /// a RAM disk.
    pub(crate) fn sync(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        file.mutex.lock(sched);
        self.change(sched, id, Change::Allocate);
        let on = sched.on_cpu();
        for _ in 0..pages {
            // The page is tagged when writeback begins, and again when it ends.
            for _ in 0..2 {
                file.cache.hold_irq(&on, costs::PAGE_CACHE_INSERT);
            }
            on.work(costs::WRITE_BACK_PAGE);
        }
        file.mutex.unlock(&on);
        self.volume(id).0.force(sched);
    }

    /// Changes a directory: file system work, and the name under the directory's lock.
    fn change_directory(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, change: Change) {
        let (directory, file) = (self.get(directory), self.get(id));
        directory.mutex.lock(sched);
        let on = sched.on_cpu();
        on.sched.memory.slab(&on, 4);
        on.work(costs::CREATE);
        {
            let _names = directory.dentry.lock(&on);
            file.dentry.hold(&on, costs::DENTRY_LINK);
        }
        self.inodes.hold(&on, costs::INODE_LIST);
        self.change(sched, id, change);
        let on = sched.on_cpu();
        file.inode.hold(&on, costs::INODE);
        directory.mutex.unlock(&on);
    }

    /// Creates and opens a file.
    pub(crate) fn create(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        walk(&sched.on_cpu(), depth, costs::OPEN);
        self.change_directory(sched, directory, id, Change::Create);
        self.change_descriptors(&sched.on_cpu());
    }

    /// Removes a name and, with it, the file and its cached pages.
    pub(crate) fn unlink(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        walk(&sched.on_cpu(), depth, 0);
        self.change_directory(sched, directory, id, Change::Remove);
        let file = self.get(id);
        let on = sched.on_cpu();
        self.unused_names.hold(&on, costs::DENTRY_LRU);
        let cached = core::mem::take(&mut *file.cache.lock_irq(&on));
        for batch in batches(cached, costs::LRU_BATCH) {
            file.cache.hold_irq(&on, costs::PAGE_CACHE_INSERT * u64::from(batch));
            on.sched.memory.release_batch(&on, batch);
        }
        queue_callback(&on);
    }

    /// Gives the file a new name in the same directory.
    pub(crate) fn rename(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        walk(&sched.on_cpu(), 2 * depth, costs::PATH_START);
        self.change_directory(sched, directory, id, Change::Rename);
    }
}
