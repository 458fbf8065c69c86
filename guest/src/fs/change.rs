//! Changing files and directories.

use super::volume::Change;
use super::{File, FileId, descriptor, walk};
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::time;

/// Appends `pages` pages.
pub(crate) fn write<M: Machine>(kernel: &Kernel<M>, id: FileId, pages: u32) {
    let file = kernel.files.get(id);
    file.mutex.lock(kernel);
    let on = kernel.on_cpu();
    for _ in 0..pages {
        on.work(costs::WRITE_PAGE);
        kernel.memory.take_page(&on);
        {
            let mut cached = file.cache.lock_irq(&on);
            *cached += 1;
            on.work(costs::PAGE_CACHE_INSERT);
        }
        kernel.memory.lru_add(&on);
    }
    finish_write(kernel, id);
}

/// Writes `pages` pages that the page cache has.
pub(crate) fn overwrite<M: Machine>(kernel: &Kernel<M>, id: FileId, pages: u32) {
    let file = kernel.files.get(id);
    file.mutex.lock(kernel);
    kernel.on_cpu().work(costs::WRITE_PAGE * u64::from(pages));
    finish_write(kernel, id);
}

/// The caller holds the file's mutex, which this gives back.
fn finish_write<M: Machine>(kernel: &Kernel<M>, id: FileId) {
    kernel.files.change(kernel, id, Change::Write);
    let (on, file) = (kernel.on_cpu(), kernel.files.get(id));
    change_inode(&on, file);
    file.mutex.unlock(&on);
}

/// Puts `pages` pages that were written on the disk, a RAM disk, and all changes of the volume up to now (fsync).
pub(crate) fn sync<M: Machine>(kernel: &Kernel<M>, id: FileId, pages: u32) {
    let file = kernel.files.get(id);
    file.mutex.lock(kernel);
    kernel.files.change(kernel, id, Change::Allocate);
    let on = kernel.on_cpu();
    for _ in 0..pages {
        // Tagged as under writeback, and again when it is done.
        for _ in 0..2 {
            let _cached = file.cache.lock_irq(&on);
            on.work(costs::PAGE_CACHE_INSERT);
        }
        on.work(costs::WRITE_BACK_PAGE);
    }
    file.mutex.unlock(&on);
    kernel.files.volume(id).0.force(kernel);
}

fn change_inode<M: Machine>(on: &OnCpu<'_, M>, file: &File<M>) {
    let _inode = file.inode.lock(on);
    on.work(costs::INODE);
}

/// Changes a directory: file system work, and the name under the directory's lock.
fn change_directory<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, change: Change) {
    let inodes = match change {
        Change::Create => 1,
        Change::Remove => -1,
        Change::Rename | Change::Write | Change::Allocate => 0,
    };
    let (directory, file) = (kernel.files.get(directory), kernel.files.get(id));
    directory.mutex.lock(kernel);
    let on = kernel.on_cpu();
    kernel.memory.slab(&on, 4);
    on.work(costs::CREATE);
    {
        let _names = directory.dentry.lock(&on);
        let mut references = file.dentry.lock(&on);
        *references += inodes;
        on.work(costs::DENTRY_LINK);
    }
    {
        let mut all = kernel.files.inodes.lock(&on);
        *all += inodes;
        on.work(costs::INODE_LIST);
    }
    kernel.files.change(kernel, id, change);
    let on = kernel.on_cpu();
    change_inode(&on, file);
    directory.mutex.unlock(&on);
}

/// Creates and opens a file.
pub(crate) fn create<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, depth: u32) {
    walk(&kernel.on_cpu(), depth, costs::OPEN);
    change_directory(kernel, directory, id, Change::Create);
    descriptor(&kernel.on_cpu(), true);
}

/// Removes a name and, with it, the file and its cached pages.
pub(crate) fn unlink<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, depth: u32) {
    walk(&kernel.on_cpu(), depth, 0);
    change_directory(kernel, directory, id, Change::Remove);
    let file = kernel.files.get(id);
    let on = kernel.on_cpu();
    {
        let _unused = kernel.files.unused_names.lock(&on);
        on.work(costs::DENTRY_LRU);
    }
    let mut left = core::mem::take(&mut *file.cache.lock_irq(&on));
    while left > 0 {
        let batch = left.min(costs::LRU_BATCH);
        {
            let _cache = file.cache.lock_irq(&on);
            on.work(costs::PAGE_CACHE_INSERT * u64::from(batch));
        }
        kernel.memory.release_batch(&on, batch);
        left -= batch;
    }
    time::queue_callback(&on);
}

/// Gives the file a new name in the same directory.
pub(crate) fn rename<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, depth: u32) {
    walk(&kernel.on_cpu(), 2 * depth, costs::PATH_START);
    change_directory(kernel, directory, id, Change::Rename);
}
