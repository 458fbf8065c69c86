//! Files: names, descriptors, the page cache.
//!
//! Path look-ups are Linux 3.3's RCU walk: no lock on the way, the lock of the last component to take a reference.
//! Names that do not exist cost no lock at all.

use alloc::boxed::Box;

use crate::class::{Event, LockClass};
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::program::Limits;
use crate::sync::SpinLock;
use crate::time;

/// A file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId(pub u32);

/// Directory entry, inode and page cache of one file.
struct File<M: Machine> {
    /// `d_lock`; the value counts references.
    dentry: SpinLock<i64, M>,
    /// `i_lock`.
    inode: SpinLock<(), M>,
    /// `tree_lock`; the value counts pages.
    cache: SpinLock<u32, M>,
    /// `i_mutex`.
    mutex: Mutex<M>,
    /// `i_mmap_mutex`.
    mappings: Mutex<M>,
}

/// All files, and what they share.
pub(crate) struct FileSystem<M: Machine> {
    files: Box<[File<M>]>,
    /// `dcache_lru_lock`.
    unused_names: SpinLock<(), M>,
    /// `inode_sb_list_lock`.
    inodes: SpinLock<i64, M>,
    journal: SpinLock<(), M>,
}

impl<M: Machine> FileSystem<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let file = |_| File {
            dentry: SpinLock::new(LockClass::Dentry, 0),
            inode: SpinLock::new(LockClass::Inode, ()),
            cache: SpinLock::new(LockClass::PageCache, 0),
            mutex: Mutex::new(),
            mappings: Mutex::new(),
        };
        FileSystem {
            files: (0..limits.files).map(file).collect(),
            unused_names: SpinLock::new(LockClass::DentryLru, ()),
            inodes: SpinLock::new(LockClass::InodeList, 0),
            journal: SpinLock::new(LockClass::Journal, ()),
        }
    }

    fn get(&self, id: FileId) -> &File<M> {
        &self.files[id.0 as usize]
    }
}

/// Walks `depth` components.
fn walk<M: Machine>(on: &OnCpu<'_, M>, depth: u32, besides: u64) {
    on.local.count(Event::Lookups);
    on.work(costs::PATH_START + costs::PATH_COMPONENT * u64::from(depth) + besides);
}

fn reference<M: Machine>(on: &OnCpu<'_, M>, file: &File<M>, change: i64) {
    let mut references = file.dentry.lock(on);
    *references += change;
    on.work(costs::DENTRY_REFERENCE);
}

fn descriptor<M: Machine>(on: &OnCpu<'_, M>, opened: bool) {
    let task = on.kernel.tasks.get(on.current());
    let _table = task.files_lock.lock(on);
    if opened {
        task.descriptors.add(1)
    } else {
        task.descriptors.sub(1)
    }
    on.work(costs::DESCRIPTOR);
}

/// Opens an existing file.
pub(crate) fn open<M: Machine>(on: &OnCpu<'_, M>, id: FileId, depth: u32) {
    walk(on, depth, costs::OPEN);
    on.kernel.memory.slab(on, 2);
    reference(on, on.kernel.files.get(id), 1);
    descriptor(on, true);
}

/// exec's own open, which needs no descriptor.
pub(crate) fn open_for_exec<M: Machine>(on: &OnCpu<'_, M>, id: FileId) {
    walk(on, 3, costs::OPEN);
    on.kernel.memory.slab(on, 2);
    let file = on.kernel.files.get(id);
    reference(on, file, 1);
    reference(on, file, -1);
}

/// Looks up a name that does not exist.
pub(crate) fn look_up_missing<M: Machine>(on: &OnCpu<'_, M>, depth: u32) {
    walk(on, depth, 0);
    on.kernel.memory.slab(on, 1);
}

pub(crate) fn stat<M: Machine>(on: &OnCpu<'_, M>, id: FileId, depth: u32) {
    walk(on, depth, costs::STAT);
    on.kernel.memory.slab(on, 1);
    let file = on.kernel.files.get(id);
    reference(on, file, 1);
    reference(on, file, -1);
}

pub(crate) fn close<M: Machine>(on: &OnCpu<'_, M>, id: FileId) {
    descriptor(on, false);
    on.work(costs::CLOSE);
    reference(on, on.kernel.files.get(id), -1);
    on.kernel.memory.slab(on, 1);
    time::queue_callback(on);
}

/// Reads `pages` pages that are in the page cache: under RCU, no lock.
pub(crate) fn read<M: Machine>(on: &OnCpu<'_, M>, pages: u32) {
    on.work(costs::READ + costs::READ_PAGE * u64::from(pages));
}

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
    journal(&on);
    change_inode(&on, file);
    file.mutex.unlock(&on);
}

fn journal<M: Machine>(on: &OnCpu<'_, M>) {
    let _journal = on.kernel.files.journal.lock(on);
    on.work(costs::JOURNAL);
}

fn change_inode<M: Machine>(on: &OnCpu<'_, M>, file: &File<M>) {
    let _inode = file.inode.lock(on);
    on.work(costs::INODE);
}

/// Changes a directory: file system work, and the name under the directory's lock.
fn change_directory<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, inodes: i64) {
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
    journal(&on);
    change_inode(&on, file);
    directory.mutex.unlock(&on);
}

/// Creates and opens a file.
pub(crate) fn create<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, depth: u32) {
    walk(&kernel.on_cpu(), depth, costs::OPEN);
    change_directory(kernel, directory, id, 1);
    descriptor(&kernel.on_cpu(), true);
}

/// Removes a name and, with it, the file and its cached pages.
pub(crate) fn unlink<M: Machine>(kernel: &Kernel<M>, directory: FileId, id: FileId, depth: u32) {
    walk(&kernel.on_cpu(), depth, 0);
    change_directory(kernel, directory, id, -1);
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
    change_directory(kernel, directory, id, 0);
}

/// Links or unlinks `count` mappings to their file.
pub(crate) fn link_mappings<M: Machine>(kernel: &Kernel<M>, id: FileId, count: u32) {
    let mappings = &kernel.files.get(id).mappings;
    for _ in 0..count {
        mappings.lock(kernel);
        let on = kernel.on_cpu();
        on.work(costs::MAP_LINK);
        mappings.unlock(&on);
    }
}
