//! ext4 and its journal, jbd2, as of Linux 3.14: which locks a change takes, and for how long.
//!
//! Every change of metadata is a *handle* on the running transaction, including the change of the inode by a `write`
//! call. Every buffer that it touches is filed on the journal's one list. So each call takes spinlocks that all CPUs
//! share several times. Only truncation takes a shared mutex.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use super::commit::{Change, Commits};
use crate::class::LockClass;
use crate::costs::ext4 as costs;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use crate::sched::{Scheduler, cond_resched};
use crate::sync::{SpinLock, WordOf};

/// One mounted ext4.
pub(super) struct Ext4<M: Machine> {
    /// `j_state_lock` as its readers take it where they take no part in it: they move its cache line.
    state_readers: WordOf<M>,
    /// The running transaction's counts of handles, updates and credits.
    updates: WordOf<M>,
    /// `j_state_lock`, with the commits.
    commits: Commits<M>,
    /// Linux's `j_list_lock`.
    list: SpinLock<(), M>,
    /// `bgl_lock`: block and inode bitmaps, by group.
    groups: Box<[SpinLock<(), M>]>,
    /// Linux's `s_orphan_lock`.
    orphans: Mutex<M>,
}

impl<M: Machine> Ext4<M> {
    pub(super) fn new() -> Self {
        let group = |_| SpinLock::new(LockClass::BlockGroup, ());
        Ext4 {
            state_readers: WordOf::<M>::new(0),
            updates: WordOf::<M>::new(0),
            commits: Commits::new(|state| RwLock::new(LockClass::JournalState, state)),
            list: SpinLock::new(LockClass::JournalList, ()),
            groups: (0..costs::GROUPS).map(group).collect(),
            orphans: Mutex::new(),
        }
    }

    /// Carries out `change` of file number `file`.
    pub(super) fn change(&self, sched: &Scheduler<M>, file: u32, change: Change) {
        match change {
            Change::Write => self.handle(sched, costs::WRITE_BUFFERS),
            Change::Rename => self.handle(sched, costs::NAME_BUFFERS),
            Change::Create => {
                self.allocate(sched, file);
                self.handle(sched, costs::CREATE_BUFFERS);
            }
            Change::Remove => {
                self.orphan(sched);
                self.handle(sched, costs::REMOVE_BUFFERS);
                self.orphan(sched);
                self.allocate(sched, file);
            }
            Change::Allocate => {
                self.allocate(sched, file);
                self.handle(sched, costs::ALLOCATE_BUFFERS);
            }
        }
    }

    /// Returns when all changes made so far are in the journal.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        self.commits.force(sched, |sched, buffers| {
            sched.on_cpu().work(costs::COMMIT);
            // Many changes concern the same few buffers.
            let buffers = buffers.min(costs::COMMIT_BUFFERS_MAX);
            for _ in 0..buffers {
                self.file_buffer(sched);
                sched.on_cpu().work(costs::COMMIT_BUFFER);
                cond_resched(sched);
            }
            // The transaction's buffers go to the checkpoint list, in one critical section.
            let on = sched.on_cpu();
            let _list = self.list.lock(&on);
            on.work(costs::LIST_HELD * u64::from(buffers));
        });
    }

    /// `jbd2_journal_start` to `jbd2_journal_stop` with `buffers` between them.
    fn handle(&self, sched: &Scheduler<M>, buffers: u32) {
        let on = sched.on_cpu();
        on.work(costs::HANDLE);
        // ORDERING: Relaxed, all: the counts are never used. Only the transfers of their cache lines matter.
        let join = || on.cpu.fetch_add(&self.updates, 1, Relaxed);
        let has_joined = self.commits.join(&on, buffers, || {
            join();
        });
        if !has_joined {
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
            join();
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
        }
        for _ in 0..buffers {
            on.work(costs::BUFFER);
            self.file_buffer(sched);
        }
        on.cpu.fetch_add(&self.updates, 1, Relaxed);
        if !has_joined {
            self.commits.add(sched, buffers);
        }
    }

    fn file_buffer(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        self.list.hold(&on, costs::LIST_HELD);
    }

    /// Sets or clears bits of the file's block group.
    fn allocate(&self, sched: &Scheduler<M>, file: u32) {
        let on = sched.on_cpu();
        on.work(costs::FIND_BLOCKS);
        self.groups[(file % costs::GROUPS) as usize].hold(&on, costs::GROUP_HELD);
    }

    /// Adds an inode to the list of inodes to be truncated after a crash, or removes it.
    fn orphan(&self, sched: &Scheduler<M>) {
        self.orphans.lock(sched);
        let on = sched.on_cpu();
        on.work(costs::ORPHAN);
        self.orphans.unlock(&on);
    }
}
