//! Files: names, descriptors, the page cache, and the file systems beneath (`volume.rs`).
//!
//! Path look-ups are Linux 3.3's RCU walk: no lock on the way, the lock of the last component to take a reference.
//! Names that do not exist cost no lock at all.

mod change;
mod commit;
mod ext4;
mod volume;
mod xfs;

use alloc::boxed::Box;

pub(crate) use change::{create, overwrite, rename, sync, unlink, write};
pub use volume::Format;

use crate::class::{Event, LockClass};
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::program::Limits;
use crate::sync::SpinLock;
use crate::time;
use volume::{Change, Volume};

/// A file or directory. It is on the volume with its number modulo that of the volumes.
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
    volumes: Box<[Volume<M>]>,
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
            volumes: (0..limits.volumes.max(1)).map(|_| Volume::new(limits.format)).collect(),
        }
    }

    fn get(&self, id: FileId) -> &File<M> {
        &self.files[id.0 as usize]
    }

    /// The volume that `id` is on, and its number there.
    fn volume(&self, id: FileId) -> (&Volume<M>, u32) {
        let volumes = self.volumes.len() as u32;
        (&self.volumes[(id.0 % volumes) as usize], id.0 / volumes)
    }

    fn change(&self, kernel: &Kernel<M>, id: FileId, change: Change) {
        let (volume, number) = self.volume(id);
        volume.change(kernel, number, change);
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
