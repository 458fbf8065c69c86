//! Changing files and directories.

use core::sync::atomic::Ordering::Relaxed;

use super::commit::Change;
use super::files::{FileId, FileSystem, walk};
use super::volume::Volume;
use crate::costs;
use crate::machine::Machine;
use crate::measured::Step;
use crate::pages::batches;
use crate::sched::{OnCpu, Scheduler};
use crate::time::queue_callback;

impl<M: Machine> FileSystem<M> {
    /// Appends `pages` pages.
    pub(crate) fn write(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        file.mutex.lock(sched);
        let on = sched.on_cpu();
        for _ in 0..pages {
            if self.execute(&on, Step::APPEND_PAGE, id) {
                file.cached.fetch_add(1, Relaxed);
                continue;
            }
            on.work(costs::WRITE_PAGE);
            on.sched.memory.take_page(&on);
            {
                let _cache = file.cache.lock_irq(&on);
                file.cached.fetch_add(1, Relaxed);
                on.work(costs::PAGE_CACHE_INSERT);
            }
            on.sched.memory.lru_add(&on);
            if self.is_disk() {
                self.page_added(&on, id);
            }
        }
        self.finish_write(sched, id, pages, true);
    }

    /// Appends to the last page.
    pub(crate) fn extend(&self, sched: &Scheduler<M>, id: FileId) {
        self.write_cached(sched, id, 1, true);
    }

    /// Writes `pages` pages that the page cache has.
    pub(crate) fn overwrite(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        self.write_cached(sched, id, pages, false);
    }

    fn write_cached(&self, sched: &Scheduler<M>, id: FileId, pages: u32, grows: bool) {
        let file = self.get(id);
        file.mutex.lock(sched);
        let on = sched.on_cpu();
        for _ in 0..pages {
            if !on.measured(Step::OVERWRITE_PAGE, |_| None) {
                on.work(costs::WRITE_PAGE);
            }
            if self.is_disk() {
                self.page_written(&on, id);
            }
        }
        self.finish_write(sched, id, pages, grows);
    }

    /// Ends a write of `pages` pages: changes the inode, and releases the file's mutex, which the caller holds.
    fn finish_write(&self, sched: &Scheduler<M>, id: FileId, pages: u32, grows: bool) {
        let is_whole = self.is_measured_whole(sched, id);
        if self.is_disk() {
            self.inode_written(sched, id, pages, grows);
        } else if !is_whole {
            self.change(sched, id, Change::Write);
        }
        let (on, file) = (sched.on_cpu(), self.get(id));
        if !is_whole {
            file.inode.hold(&on, costs::INODE);
        }
        file.mutex.unlock(&on);
    }

    /// Puts `pages` pages that were written, and all changes of the volume up to now, on the disk (fsync). The disk is
    /// a RAM disk.
    pub(crate) fn sync(&self, sched: &Scheduler<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        file.mutex.lock(sched);
        let change = if self.is_disk() {
            self.blocks_needed(id)
        } else {
            Change::Allocate
        };
        self.change(sched, id, change);
        self.write_back(&sched.on_cpu(), id, pages);
        file.mutex.unlock(&sched.on_cpu());
        self.volume(id).0.force(sched);
    }

    /// Reads or writes a block past the page cache. Pages that wait for their blocks are put on the disk before.
    pub(crate) fn direct(&self, sched: &Scheduler<M>, id: FileId) {
        let file = self.get(id);
        file.mutex.lock(sched);
        if self.is_disk() {
            let waiting = self.pages_without_blocks(id);
            if waiting != 0 {
                let change = self.blocks_needed(id);
                self.change(sched, id, change);
                self.write_back(&sched.on_cpu(), id, waiting);
            }
        }
        let on = sched.on_cpu();
        on.work(costs::DIRECT);
        file.mutex.unlock(&on);
    }

    /// Copies `pages` pages to the RAM disk.
    fn write_back(&self, on: &OnCpu<'_, M>, id: FileId, pages: u32) {
        let file = self.get(id);
        for _ in 0..pages {
            // The page is tagged when writeback begins, and again when it ends.
            for _ in 0..2 {
                file.cache.hold_irq(on, costs::PAGE_CACHE_INSERT);
            }
            on.work(costs::WRITE_BACK_PAGE);
        }
    }

    /// Returns `true` if a measured kernel's rows have everything that changes of `id` take: its volume is a plain one,
    /// as the tmpfs of the measurement.
    fn is_measured_whole(&self, sched: &Scheduler<M>, id: FileId) -> bool {
        sched.measured.is_on() && matches!(self.volume(id).0, Volume::Plain(_))
    }

    /// Changes a directory: file system work, and the name under the directory's lock.
    fn change_directory(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, change: Change) {
        let owner = directory;
        let (directory, file) = (self.get(directory), self.get(id));
        directory.mutex.lock(sched);
        let on = sched.on_cpu();
        if self.is_measured_whole(sched, owner) && self.execute(&on, Step::CHANGE_NAME, owner) {
            directory.mutex.unlock(&on);
            return;
        }
        on.sched.memory.slab(&on, 4);
        on.work(costs::CREATE);
        {
            let _names = directory.dentry.lock(&on);
            file.dentry.hold(&on, costs::DENTRY_LINK);
        }
        // A file that is renamed stays on the list.
        if change != Change::Rename || !self.is_disk() {
            self.inodes.hold(&on, costs::INODE_LIST);
        }
        match change {
            Change::Create if self.is_disk() => self.disk_create(&on, owner, id),
            Change::Remove if self.is_disk() => self.disk_remove(&on, id),
            _ => {}
        }
        self.change(sched, id, change);
        let on = sched.on_cpu();
        file.inode.hold(&on, costs::INODE);
        directory.mutex.unlock(&on);
    }

    /// Creates and opens a file.
    pub(crate) fn create(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        let is_whole = self.is_measured_whole(sched, directory);
        if !is_whole {
            walk(&sched.on_cpu(), depth, costs::OPEN);
        }
        self.change_directory(sched, directory, id, Change::Create);
        if !is_whole {
            self.change_descriptors(&sched.on_cpu());
        }
    }

    /// Removes a name and, with it, the file and its cached pages.
    pub(crate) fn unlink(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        let is_whole = self.is_measured_whole(sched, directory);
        if !is_whole {
            walk(&sched.on_cpu(), depth, 0);
        }
        let file = self.get(id);
        let has_blocks = file.disk.blocks.swap(0, Relaxed) != 0;
        self.change_directory(sched, directory, id, Change::Remove);
        let on = sched.on_cpu();
        if is_whole && file.cached.load(Relaxed) == 0 {
            return queue_callback(&on);
        }
        self.unused_names.hold(&on, costs::DENTRY_LRU);
        let cached = {
            let _cache = file.cache.lock_irq(&on);
            file.cached.swap(0, Relaxed)
        };
        if self.is_disk() {
            self.pages_removed(&on, id, cached);
        }
        for batch in batches(cached, costs::LRU_BATCH) {
            if !self.is_disk() {
                file.cache.hold_irq(&on, costs::PAGE_CACHE_INSERT * u64::from(batch));
            }
            on.sched.memory.release_batch(&on, batch);
        }
        if self.is_disk() {
            self.change(sched, id, Change::Evict { has_blocks });
        }
        queue_callback(&sched.on_cpu());
    }

    /// Gives the file a new name in the same directory.
    pub(crate) fn rename(&self, sched: &Scheduler<M>, directory: FileId, id: FileId, depth: u32) {
        walk(&sched.on_cpu(), 2 * depth, costs::PATH_START);
        self.change_directory(sched, directory, id, Change::Rename);
    }
}
