//! The files and what they share, and the calls that do not change them.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::commit::Change;
use super::volume::Volume;
use crate::class::{Event, LockClass};
use crate::costs;
use crate::ids::TaskTable;
use crate::limits::{Format, Limits};
use crate::local::{Local, Shared32};
use crate::machine::Machine;
use crate::measured::Step;
use crate::mutex::Mutex;
use crate::sched::{OnCpu, Scheduler};
use crate::sync::SpinLock;
use crate::time::queue_callback;

/// The presence of a file whose pages are all in the page cache.
pub(super) const CACHED: u32 = 0;

/// A file or directory. It is on the volume with its number modulo the number of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId(pub u32);

/// Directory entry, inode and page cache of one file.
pub(super) struct File<M: Machine> {
    /// Linux's `d_lock`.
    pub(super) dentry: SpinLock<(), M>,
    /// Linux's `i_lock`.
    pub(super) inode: SpinLock<(), M>,
    /// Linux's `tree_lock`.
    pub(super) cache: SpinLock<(), M>,
    /// Pages in the page cache.
    pub(super) cached: AtomicU32,
    /// Whether what is read of it is in the page cache (`fetch.rs`).
    pub(super) presence: Shared32,
    /// What a file on a disk has besides.
    pub(super) disk: OnDisk<M>,
    /// Linux's `i_mutex`.
    pub(super) mutex: Mutex<M>,
    /// Linux's `i_mmap_mutex`.
    mappings: Mutex<M>,
}

/// A file's state on a volume that is a disk.
pub(super) struct OnDisk<M: Machine> {
    /// Linux's `private_lock`: the buffers of the file's pages.
    pub(super) buffers: SpinLock<(), M>,
    /// `i_block_reservation_lock` (ext4) or `i_flags_lock` (XFS).
    pub(super) own: SpinLock<(), M>,
    /// The directory that it was created in. Written under that directory's mutex.
    pub(super) directory: AtomicU32,
    /// Not 0: it has pages or changes that are not on the disk, so its inode is on the disk's list.
    pub(super) dirty: AtomicU32,
    /// Blocks that it has, those allocated ahead included.
    pub(super) blocks: AtomicU32,
    /// When its times were changed last, in ticks. Written under the file's mutex.
    pub(super) changed: Local,
}

/// All files, and what they share.
pub(crate) struct FileSystem<M: Machine> {
    files: Box<[File<M>]>,
    /// `files_struct.file_lock` of each task.
    descriptors: TaskTable<SpinLock<(), M>>,
    /// Linux's `dcache_lru_lock`.
    pub(super) unused_names: SpinLock<(), M>,
    /// Linux's `inode_sb_list_lock`.
    pub(super) inodes: SpinLock<(), M>,
    /// Linux's `inode_hash_lock`.
    pub(super) hash: SpinLock<(), M>,
    pub(super) format: Format,
    volumes: Box<[Volume<M>]>,
    /// Each volume's `wb.list_lock`.
    dirty: Box<[SpinLock<(), M>]>,
}

impl<M: Machine> FileSystem<M> {
    pub(crate) fn new(limits: &Limits, tasks: u32) -> Self {
        let own = match limits.format {
            Format::Ext4 => LockClass::Reservation,
            Format::Xfs | Format::Plain => LockClass::InodeFlags,
        };
        let disk = || OnDisk {
            buffers: SpinLock::new(LockClass::PageBuffers, ()),
            own: SpinLock::new(own, ()),
            directory: AtomicU32::new(0),
            dirty: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
            changed: Local::new(0),
        };
        let file = |_| File {
            disk: disk(),
            dentry: SpinLock::new(LockClass::Dentry, ()),
            inode: SpinLock::new(LockClass::Inode, ()),
            cache: SpinLock::new(LockClass::PageCache, ()),
            cached: AtomicU32::new(0),
            presence: Shared32::new(CACHED),
            mutex: Mutex::new(),
            mappings: Mutex::new(),
        };
        let volumes = 0..limits.volumes.max(1);
        let of_volume = limits.files.div_ceil(limits.volumes.max(1));
        FileSystem {
            files: (0..limits.files).map(file).collect(),
            descriptors: TaskTable::new(tasks, |_| SpinLock::new(LockClass::Files, ())),
            unused_names: SpinLock::new(LockClass::DentryLru, ()),
            inodes: SpinLock::new(LockClass::InodeList, ()),
            hash: SpinLock::new(LockClass::InodeHash, ()),
            format: limits.format,
            dirty: volumes
                .clone()
                .map(|_| SpinLock::new(LockClass::DirtyInodes, ()))
                .collect(),
            volumes: volumes.map(|_| Volume::new(limits.format, of_volume)).collect(),
        }
    }

    pub(super) fn get(&self, id: FileId) -> &File<M> {
        &self.files[id.0 as usize]
    }

    /// The volume that `id` is on, and the file's number there.
    pub(super) fn volume(&self, id: FileId) -> (&Volume<M>, u32) {
        let (volume, number) = place(id, self.volumes.len() as u32);
        (&self.volumes[volume as usize], number)
    }

    /// Makes the volume of `id` carry out `change`.
    pub(super) fn change(&self, sched: &Scheduler<M>, id: FileId, change: Change) {
        let (volume, number) = self.volume(id);
        // ORDERING: Relaxed: plain memory.
        let directory = self.get(id).disk.directory.load(Relaxed);
        volume.change(sched, directory, number, change);
    }

    /// The lock of the list of dirty inodes of the volume that `id` is on.
    pub(super) fn dirty_inodes(&self, id: FileId) -> &SpinLock<(), M> {
        &self.dirty[place(id, self.volumes.len() as u32).0 as usize]
    }

    /// Executes `step` on file `id` as a measured kernel does. Returns `false` if the kernel is not a measured one.
    pub(super) fn execute<'a>(&'a self, on: &'a OnCpu<'a, M>, step: Step, id: FileId) -> bool {
        let file = self.get(id);
        on.measured(step, |class| match class {
            LockClass::Dentry => Some(&file.dentry),
            LockClass::Inode => Some(&file.inode),
            LockClass::PageCache => Some(&file.cache),
            LockClass::InodeList => Some(&self.inodes),
            LockClass::Files => Some(&self.descriptors[on.current()]),
            _ => None,
        })
    }

    /// Adds or removes a descriptor of the caller's task, or all of them.
    pub(crate) fn change_descriptors(&self, on: &OnCpu<'_, M>) {
        self.descriptors[on.current()].hold(on, costs::DESCRIPTOR);
    }

    /// Takes or drops a reference of a file's name.
    fn reference(&self, on: &OnCpu<'_, M>, id: FileId) {
        self.get(id).dentry.hold(on, costs::DENTRY_REFERENCE);
    }

    /// Opens an existing file.
    pub(crate) fn open(&self, on: &OnCpu<'_, M>, id: FileId, depth: u32) {
        if self.execute(on, Step::OPEN, id) {
            on.local.count(Event::Lookups);
            return;
        }
        walk(on, depth, costs::OPEN);
        on.sched.memory.slab(on, 2);
        self.reference(on, id);
        self.change_descriptors(on);
    }

    /// Opens a file for exec, which needs no descriptor.
    pub(crate) fn open_for_exec(&self, on: &OnCpu<'_, M>, id: FileId) {
        walk(on, 3, costs::OPEN);
        on.sched.memory.slab(on, 2);
        self.reference(on, id);
        self.reference(on, id);
    }

    /// Looks up a name that does not exist.
    pub(crate) fn look_up_missing(&self, on: &OnCpu<'_, M>, depth: u32) {
        walk(on, depth, 0);
        on.sched.memory.slab(on, 1);
    }

    pub(crate) fn stat(&self, on: &OnCpu<'_, M>, id: FileId, depth: u32) {
        if self.execute(on, Step::STAT, id) {
            on.local.count(Event::Lookups);
            return;
        }
        walk(on, depth, costs::STAT);
        on.sched.memory.slab(on, 1);
        self.reference(on, id);
        self.reference(on, id);
    }

    pub(crate) fn close(&self, on: &OnCpu<'_, M>, id: FileId) {
        if self.execute(on, Step::CLOSE, id) {
            return queue_callback(on);
        }
        self.change_descriptors(on);
        on.work(costs::CLOSE);
        self.reference(on, id);
        on.sched.memory.slab(on, 1);
        queue_callback(on);
    }

    /// Reads `pages` pages that are in the page cache: under RCU, without a lock.
    pub(crate) fn read(&self, on: &OnCpu<'_, M>, pages: u32) {
        if on.sched.measured.is_on() {
            for _ in 0..pages {
                on.measured(Step::READ_PAGE, |_| None);
            }
            return;
        }
        on.work(costs::READ + costs::READ_PAGE * u64::from(pages));
    }

    /// Links `count` mappings to their file, or unlinks them.
    pub(crate) fn link_mappings(&self, sched: &Scheduler<M>, id: FileId, count: u32) {
        let mappings = &self.get(id).mappings;
        for _ in 0..count {
            mappings.lock(sched);
            let on = sched.on_cpu();
            on.work(costs::MAP_LINK);
            mappings.unlock(&on);
        }
    }
}

/// Walks `depth` path components, and does `extra` nanoseconds of work.
pub(super) fn walk<M: Machine>(on: &OnCpu<'_, M>, depth: u32, extra: u64) {
    on.local.count(Event::Lookups);
    on.work(costs::PATH_START + costs::PATH_COMPONENT * u64::from(depth) + extra);
}

/// Returns the volume that `id` is on, of `volumes`, and the file's number there.
fn place(id: FileId, volumes: u32) -> (u32, u32) {
    (id.0 % volumes, id.0 / volumes)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn files_fill_their_volumes_evenly_and_without_gaps() {
        for volumes in 1..5 {
            let placed: BTreeSet<(u32, u32)> = (0..volumes * 7).map(|id| place(FileId(id), volumes)).collect();
            let all: BTreeSet<(u32, u32)> = (0..volumes)
                .flat_map(|at| (0..7).map(move |number| (at, number)))
                .collect();
            assert_eq!(placed, all, "{volumes} volumes");
        }
    }
}
