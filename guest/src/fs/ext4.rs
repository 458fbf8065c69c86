//! ext4 and its journal, jbd2, as of Linux 3.14: which locks a change takes, and for how long.
//!
//! Every change of metadata, a `write` call's of the inode included, is a *handle* on the running transaction; every
//! buffer that it touches is filed on the journal's one list. So spinlocks that all CPUs share are taken several times
//! for each call; only truncation meets at a mutex.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use super::commit::Commits;
use super::volume::Change;
use crate::class::LockClass;
use crate::costs::ext4 as costs;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::cond_resched;
use crate::sync::{SpinLock, WordOf};

/// One mounted ext4.
pub(super) struct Ext4<M: Machine> {
    /// `j_state_lock` as its readers take it: a reader-writer lock, of which they move the line.
    state_readers: WordOf<M>,
    /// The running transaction's counts of handles, updates and credits.
    updates: WordOf<M>,
    /// `j_state_lock` as its writers take it, with the commits.
    commits: Commits<M>,
    /// `j_list_lock`.
    list: SpinLock<(), M>,
    /// `bgl_lock`: block and inode bitmaps, by group.
    groups: Box<[SpinLock<(), M>]>,
    /// `s_orphan_lock`.
    orphans: Mutex<M>,
}

impl<M: Machine> Ext4<M> {
    pub(super) fn new() -> Self {
        let group = |_| SpinLock::new(LockClass::BlockGroup, ());
        Ext4 {
            state_readers: WordOf::<M>::new(0),
            updates: WordOf::<M>::new(0),
            commits: Commits::new(LockClass::JournalState),
            list: SpinLock::new(LockClass::JournalList, ()),
            groups: (0..costs::GROUPS).map(group).collect(),
            orphans: Mutex::new(),
        }
    }

    /// Carries `change` out, for file number `file`.
    pub(super) fn change(&self, kernel: &Kernel<M>, file: u32, change: Change) {
        match change {
            Change::Write => self.handle(kernel, costs::WRITE_BUFFERS),
            Change::Rename => self.handle(kernel, costs::NAME_BUFFERS),
            Change::Create => {
                self.allocate(kernel, file);
                self.handle(kernel, costs::CREATE_BUFFERS);
            }
            Change::Remove => {
                self.orphan(kernel);
                self.handle(kernel, costs::REMOVE_BUFFERS);
                self.orphan(kernel);
                self.allocate(kernel, file);
            }
            Change::Allocate => {
                self.allocate(kernel, file);
                self.handle(kernel, costs::ALLOCATE_BUFFERS);
            }
        }
    }

    /// Returns when all changes made so far are in the journal.
    pub(super) fn force(&self, kernel: &Kernel<M>) {
        self.commits.force(kernel, |kernel, buffers| {
            kernel.on_cpu().work(costs::COMMIT);
            // Many changes are to the same few buffers.
            let buffers = buffers.min(costs::COMMIT_BUFFERS_MAX);
            for _ in 0..buffers {
                self.file_buffer(kernel);
                kernel.on_cpu().work(costs::COMMIT_BUFFER);
                cond_resched(kernel);
            }
            // The transaction's buffers go to the list of those to be checkpointed, in one section.
            let on = kernel.on_cpu();
            let _list = self.list.lock(&on);
            on.work(costs::LIST_HELD * u64::from(buffers));
        });
    }

    /// `jbd2_journal_start` to `jbd2_journal_stop` with `buffers` between them.
    fn handle(&self, kernel: &Kernel<M>, buffers: u32) {
        let on = kernel.on_cpu();
        on.work(costs::HANDLE);
        // ORDERING: Relaxed, all: what is counted is never relied on; the lines' journeys are what matters.
        on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
        on.cpu.fetch_add(&self.updates, 1, Relaxed);
        on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
        for _ in 0..buffers {
            on.work(costs::BUFFER);
            self.file_buffer(kernel);
        }
        on.cpu.fetch_add(&self.updates, 1, Relaxed);
        self.commits.add(kernel, buffers);
    }

    fn file_buffer(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        let _list = self.list.lock(&on);
        on.work(costs::LIST_HELD);
    }

    /// Sets or clears bits of the group that the file is in.
    fn allocate(&self, kernel: &Kernel<M>, file: u32) {
        let on = kernel.on_cpu();
        on.work(costs::FIND_BLOCKS);
        let _group = self.groups[(file % costs::GROUPS) as usize].lock(&on);
        on.work(costs::GROUP_HELD);
    }

    /// Puts an inode on the list of those to be truncated after a crash, or takes it off.
    fn orphan(&self, kernel: &Kernel<M>) {
        self.orphans.lock(kernel);
        let on = kernel.on_cpu();
        on.work(costs::ORPHAN);
        self.orphans.unlock(&on);
    }
}
