//! ext4 as of Linux 3.14: which locks a change takes, and for how long. Its journal is in `journal.rs`.
//!
//! Every change of metadata is made under a *handle* of the journal, including the change of the inode by a `write`
//! call. A block that a handle changes is filed in the running transaction if it is the first change there. Files
//! without a name, until they are removed, are on a list of the whole file system, under a mutex that is taken while
//! the handle is held (`s_orphan_lock`; since 3.16 only for a part of that work, cd2c080c33e6, version uncertain).
//!
//! Where a lock's time is measured, it is that of Linux 6.1 (`docs/spec/costs.md`). What differs in 3.14: a `write`
//! call begins its handle even if the blocks are allocated later (until 5.15, uncertain). The copy of an inode to its
//! block took no lock of its own (`i_raw_lock`, since 3.16, uncertain).

use alloc::boxed::Box;

use super::commit::Change;
use super::journal::Journal;
use crate::class::LockClass;
use crate::costs::ext4 as costs;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::Scheduler;
use crate::sync::SpinLock;

/// One mounted ext4.
pub(super) struct Ext4<M: Machine> {
    /// Its blocks of metadata have the numbers [`Block::index`].
    journal: Journal<M>,
    /// `bgl_lock`: block and inode bitmaps, by group.
    groups: Box<[SpinLock<(), M>]>,
    /// Linux's `s_orphan_lock`.
    orphans: Mutex<M>,
}

impl<M: Machine> Ext4<M> {
    pub(super) fn new(files: u32) -> Self {
        let group = |_| SpinLock::new(LockClass::BlockGroup, ());
        Ext4 {
            journal: Journal::new(Block::count(files)),
            groups: (0..costs::GROUPS).map(group).collect(),
            orphans: Mutex::new(),
        }
    }

    /// Carries out `change` of file number `file` in directory number `directory`. A directory's files are in its
    /// group.
    pub(super) fn change(&self, sched: &Scheduler<M>, directory: u32, file: u32, change: Change) {
        let group = directory % costs::GROUPS;
        let inode = Block::Inode(file);
        let names = [Block::Directory(directory), Block::Inode(directory)];
        let of_inode = [Block::InodeBits(group), Block::Descriptors, inode];
        let of_blocks = [Block::Bits(group), Block::Descriptors, inode];
        let change_blocks = |blocks: &[Block]| self.change_blocks(sched, blocks);
        self.handle(sched, || match change {
            Change::Write | Change::Written => change_blocks(&[inode]),
            Change::Overwrite => {}
            Change::Rename => {
                change_blocks(&names);
                change_blocks(&[inode]);
            }
            Change::Create => {
                self.set_bits(sched, group, costs::NEW_INODE_HELD);
                change_blocks(&of_inode);
                change_blocks(&names);
            }
            Change::Remove => {
                change_blocks(&names);
                self.orphan(sched, &[Block::Super, inode]);
            }
            Change::Evict { has_blocks } => {
                if has_blocks {
                    // Truncation finds the inode on the list.
                    self.orphan(sched, &[]);
                    self.set_bits(sched, group, costs::BLOCKS_HELD);
                    change_blocks(&of_blocks);
                }
                self.orphan(sched, &[Block::Super, inode]);
                self.set_bits(sched, group, costs::OLD_INODE_HELD);
                change_blocks(&of_inode);
            }
            Change::Allocate => {
                self.set_bits(sched, group, costs::BLOCKS_HELD);
                change_blocks(&of_blocks);
            }
        });
    }

    /// Returns when all changes made so far are in the journal.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        self.journal.force(sched);
    }

    /// Makes `changes` under a handle: `jbd2_journal_start` to `jbd2_journal_stop`.
    fn handle(&self, sched: &Scheduler<M>, changes: impl FnOnce()) {
        sched.on_cpu().work(costs::HANDLE);
        self.journal.start(sched);
        changes();
        self.journal.stop(&sched.on_cpu());
    }

    fn change_blocks(&self, sched: &Scheduler<M>, blocks: &[Block]) {
        for block in blocks {
            self.journal.change(sched, block.index());
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

    /// Adds an inode to the list of inodes to be truncated after a crash, or removes it, with the changes of `blocks`
    /// that this takes. None: the inode is on the list already.
    fn orphan(&self, sched: &Scheduler<M>, blocks: &[Block]) {
        self.orphans.lock(sched);
        sched.on_cpu().work(costs::ORPHAN);
        self.change_blocks(sched, blocks);
        self.orphans.unlock(&sched.on_cpu());
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
