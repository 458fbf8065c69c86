//! ext4 and its journal, jbd2, as of Linux 3.14: which locks a change takes, and for how long.
//!
//! Every change of metadata is a *handle* on the running transaction, including the change of the inode by a `write`
//! call. A block that a handle changes is filed on the journal's list if it is the first change in this transaction,
//! and the commit moves it from list to list. Truncation takes a shared mutex.
//!
//! Where a lock's time is measured, it is that of Linux 6.1 (`kernels/ext4-6.1.toml`). What differs in 3.14: a `write`
//! call begins its handle even if the blocks are allocated later (until 5.15, uncertain). The copy of an inode to its
//! block took no lock of its own (`i_raw_lock`, since 3.16, uncertain).

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use super::commit::{Change, Commits};
use crate::class::LockClass;
use crate::costs::ext4 as costs;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use crate::sched::{OnCpu, Scheduler, WakeHint, cond_resched};
use crate::sync::{SpinLock, WordOf};
use crate::wait::WaitQueue;

/// One mounted ext4.
pub(super) struct Ext4<M: Machine> {
    /// `j_state_lock` as its readers take it where they take no part in it: they move its cache line.
    state_readers: WordOf<M>,
    /// The running transaction's counts of handles, updates and credits.
    updates: WordOf<M>,
    /// `j_state_lock`, with the commits.
    commits: Commits<M>,
    /// `j_wait_updates`: a commit waits here for the last handle.
    last_update: WaitQueue<M>,
    /// The blocks of metadata, by [`Block::index`].
    blocks: Box<[Buffer<M>]>,
    /// Linux's `j_list_lock`.
    list: SpinLock<(), M>,
    /// `bgl_lock`: block and inode bitmaps, by group.
    groups: Box<[SpinLock<(), M>]>,
    /// Linux's `s_orphan_lock`.
    orphans: Mutex<M>,
}

impl<M: Machine> Ext4<M> {
    pub(super) fn new(files: u32) -> Self {
        let group = |_| SpinLock::new(LockClass::BlockGroup, ());
        Ext4 {
            state_readers: WordOf::<M>::new(0),
            updates: WordOf::<M>::new(0),
            commits: Commits::new(|state| RwLock::new(LockClass::JournalState, state)),
            last_update: WaitQueue::new(),
            blocks: (0..Block::count(files)).map(|_| Buffer::new()).collect(),
            list: SpinLock::new(LockClass::JournalList, ()),
            groups: (0..costs::GROUPS).map(group).collect(),
            orphans: Mutex::new(),
        }
    }

    /// Carries out `change` of file number `file` in directory number `directory`. A directory's files are in its
    /// group.
    pub(super) fn change(&self, sched: &Scheduler<M>, directory: u32, file: u32, change: Change) {
        let group = directory % costs::GROUPS;
        let (inode, names) = (
            Block::Inode(file),
            [Block::Directory(directory), Block::Inode(directory)],
        );
        let bits = [Block::InodeBits(group), Block::Descriptors, inode];
        let blocks = [Block::Bits(group), Block::Descriptors, inode];
        match change {
            Change::Write | Change::Written => self.handle(sched, &[inode]),
            Change::Overwrite => self.handle(sched, &[]),
            Change::Rename => self.handle(sched, &[names[0], names[1], inode]),
            Change::Create => {
                self.set_bits(sched, group, costs::NEW_INODE_HELD);
                self.handle(sched, &[bits[0], bits[1], inode, names[0], names[1]]);
            }
            Change::Remove => {
                self.orphan(sched);
                self.handle(sched, &[names[0], names[1], inode, Block::Super]);
            }
            // Truncation finds the inode on the list.
            Change::Evict { has_blocks } => {
                self.orphan(sched);
                if has_blocks {
                    self.set_bits(sched, group, costs::BLOCKS_HELD);
                    self.handle(sched, &blocks);
                }
                self.orphan(sched);
                self.set_bits(sched, group, costs::OLD_INODE_HELD);
                self.handle(sched, &bits);
            }
            Change::Allocate => {
                self.set_bits(sched, group, costs::BLOCKS_HELD);
                self.handle(sched, &blocks);
            }
        }
    }

    /// Returns when all changes made so far are in the journal.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        self.commits.force(sched, |sched, buffers| {
            sched.on_cpu().work(costs::COMMIT);
            self.clean_checkpoints(sched);
            for _ in 0..buffers {
                for held in costs::COMMIT_HELD {
                    self.list.hold(&sched.on_cpu(), held);
                }
                sched.on_cpu().work(costs::COMMIT_BUFFER);
                cond_resched(sched);
            }
        });
    }

    /// `jbd2_journal_start` to `jbd2_journal_stop` with changes of `blocks` between them.
    fn handle(&self, sched: &Scheduler<M>, blocks: &[Block]) {
        let on = sched.on_cpu();
        on.work(costs::HANDLE);
        // ORDERING: Relaxed, all: the counts are never used. Only the transfers of their cache lines matter.
        let join = || {
            on.cpu.fetch_add(&self.updates, 1, Relaxed);
        };
        if !self.commits.join(&on, join) {
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
            join();
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
        }
        for &block in blocks {
            on.work(costs::BUFFER);
            self.file_block(sched, block);
        }
        if on.cpu.fetch_add(&self.updates, u32::MAX, Relaxed) == 1 {
            self.last_update.wake(&on, 1, WakeHint::Plain);
        }
    }

    /// Files `block` on the running transaction's lists, if it is not there yet.
    fn file_block(&self, sched: &Scheduler<M>, block: Block) {
        let on = sched.on_cpu();
        let (running, buffer) = (self.commits.open(), &self.blocks[block.index()]);
        // Access for writing, and marking it dirty.
        for _ in 0..2 {
            buffer.lock_state(&on);
        }
        if buffer.filed.swap(running, Relaxed) == running {
            return;
        }
        for held in costs::FILE_HELD {
            self.list.hold(&on, held);
        }
        self.commits.add(1);
    }

    /// Looks for buffers of past transactions that are written back meanwhile, at the begin of a commit
    /// (`__jbd2_journal_clean_checkpoint_list`), with `j_list_lock` held. Nothing is written back within seconds, so it
    /// looks at all of them in vain. Since 3.18 it stops at the first (841df7df1962, version uncertain).
    fn clean_checkpoints(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let _list = self.list.lock(&on);
        // ORDERING: Relaxed: plain memory.
        let filed = self.blocks.iter().filter(|buffer| buffer.filed.load(Relaxed) != 0);
        for buffer in filed {
            buffer.lock_state(&on);
            if on.local.need_resched.get() != 0 {
                return;
            }
        }
    }

    /// Sets or clears bits and counts of a group.
    fn set_bits(&self, sched: &Scheduler<M>, group: u32, sections: &[u64]) {
        let on = sched.on_cpu();
        on.work(costs::FIND_BLOCKS);
        for &held in sections {
            self.groups[group as usize].hold(&on, held);
        }
    }

    /// Adds an inode to the list of inodes to be truncated after a crash, or removes it.
    fn orphan(&self, sched: &Scheduler<M>) {
        self.orphans.lock(sched);
        let on = sched.on_cpu();
        on.work(costs::ORPHAN);
        self.orphans.unlock(&on);
    }
}

/// A block of metadata in memory.
struct Buffer<M: Machine> {
    /// Its state (`b_state`), a bit of which is a spinlock. It is held so shortly that only the line's transfer counts.
    state: WordOf<M>,
    /// The transaction in which it was filed last. 0: none.
    filed: AtomicU32,
}

impl<M: Machine> Buffer<M> {
    fn new() -> Self {
        Buffer {
            state: WordOf::<M>::new(0),
            filed: AtomicU32::new(0),
        }
    }

    /// `jbd_lock_bh_state`, and back.
    fn lock_state(&self, on: &OnCpu<'_, M>) {
        // ORDERING: Relaxed: the value is never used.
        on.cpu.fetch_add(&self.state, 1, Relaxed);
    }
}

/// A block of metadata, by what is in it.
#[derive(Clone, Copy, Debug)]
enum Block {
    Super,
    /// The descriptors of all groups of a small file system.
    Descriptors,
    /// The bits of a group's inodes.
    InodeBits(u32),
    /// The bits of a group's blocks.
    Bits(u32),
    /// The block of the inode table with the inode of a file.
    Inode(u32),
    /// The block of a directory with the name. A small directory has one.
    Directory(u32),
}

impl Block {
    /// How many blocks a file system of `files` files has.
    fn count(files: u32) -> usize {
        Block::Directory(files).index()
    }

    fn index(self) -> usize {
        let inodes = 2 + 2 * costs::GROUPS;
        let index = match self {
            Block::Super => 0,
            Block::Descriptors => 1,
            Block::InodeBits(group) => 2 + group,
            Block::Bits(group) => 2 + costs::GROUPS + group,
            // The tables and the directories alternate, so that neither depends on the number of files.
            Block::Inode(file) => inodes + 2 * (file / costs::INODES_OF_BLOCK),
            Block::Directory(directory) => inodes + 2 * directory + 1,
        };
        index as usize
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn different_blocks_have_different_places_within_the_count() {
        let files = 100;
        let groups = (0..costs::GROUPS).flat_map(|group| [Block::InodeBits(group), Block::Bits(group)]);
        let tables = (0..files).step_by(costs::INODES_OF_BLOCK as usize).map(Block::Inode);
        let names = (0..files).map(Block::Directory);
        let blocks = [Block::Super, Block::Descriptors]
            .into_iter()
            .chain(groups)
            .chain(tables)
            .chain(names);
        let places: Vec<usize> = blocks.map(Block::index).collect();
        let distinct: BTreeSet<usize> = places.iter().copied().collect();
        assert_eq!(distinct.len(), places.len());
        assert!(places.iter().all(|place| *place < Block::count(files)));
        assert_eq!(
            Block::Inode(0).index(),
            Block::Inode(costs::INODES_OF_BLOCK - 1).index()
        );
    }
}
