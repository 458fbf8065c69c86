//! XFS as of Linux 3.14: which locks a change takes, and for how long.
//!
//! Log space is reserved without a lock. Changes are gathered on per-transaction lists, and enter the log's list in one
//! short critical section. Data are written without a transaction. Tasks contend for the header buffers of an
//! allocation group, whose locks are semaphores: their waiters sleep, and a release hands over.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use super::commit::{Change, Commits};
use crate::class::LockClass;
use crate::config::MmapLock;
use crate::costs::xfs as costs;
use crate::machine::Machine;
use crate::rwlock::RwLock;
use crate::rwsem::RwSemaphore;
use crate::sched::{Scheduler, cond_resched};
use crate::semaphore::Semaphore;
use crate::sync::{SpinLock, WordOf};

/// One mounted XFS.
pub(super) struct Xfs<M: Machine> {
    /// The log's grant heads.
    grant: WordOf<M>,
    /// `xc_ctx_lock`: a commit reads it, and a push that switches to a new list writes it.
    context: RwSemaphore<M>,
    /// `xc_ctx_lock` as its readers take it where they take no part in it: they move its cache line.
    context_readers: WordOf<M>,
    /// Linux's `xc_cil_lock`.
    cil: SpinLock<(), M>,
    /// `xa_lock`: the list of changes that are in the log and not yet in place.
    ail: SpinLock<(), M>,
    /// `l_icloglock`, with the commits of the log.
    commits: Commits<M>,
    groups: Box<[Group<M>]>,
}

/// The header buffers of an allocation group.
struct Group<M: Machine> {
    inodes: Semaphore<M>,
    blocks: Semaphore<M>,
}

impl<M: Machine> Xfs<M> {
    pub(super) fn new() -> Self {
        let group = |_| Group {
            inodes: Semaphore::new(),
            blocks: Semaphore::new(),
        };
        Xfs {
            grant: WordOf::<M>::new(0),
            context: RwSemaphore::new(),
            context_readers: WordOf::<M>::new(0),
            cil: SpinLock::new(LockClass::Cil, ()),
            ail: SpinLock::new(LockClass::Ail, ()),
            commits: Commits::new(|state| RwLock::without_readers(LockClass::Iclog, state)),
            groups: (0..costs::GROUPS).map(group).collect(),
        }
    }

    /// Carries out `change` of file number `file`.
    pub(super) fn change(&self, sched: &Scheduler<M>, file: u32, change: Change) {
        let group = &self.groups[(file % costs::GROUPS) as usize];
        match change {
            Change::Write => {}
            Change::Rename => self.transaction(sched, None),
            Change::Create => self.transaction(sched, Some(&group.inodes)),
            Change::Remove => {
                self.transaction(sched, None);
                // Inactivation: blocks, then the inode.
                self.transaction(sched, Some(&group.blocks));
                self.transaction(sched, Some(&group.inodes));
            }
            Change::Allocate => self.transaction(sched, Some(&group.blocks)),
        }
    }

    /// Returns when all changes made so far are in the log.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        self.commits.force(sched, |sched, items| {
            let items = items.min(costs::PUSH_ITEMS_MAX);
            if sched.system.config.rwlocks {
                let spins = sched.system.config.mmap_lock >= MmapLock::Spinning;
                self.context.write(sched, spins);
                let on = sched.on_cpu();
                on.work(costs::CONTEXT_ITEM * u64::from(items));
                self.context.write_unlock(&on);
            }
            sched.on_cpu().work(costs::PUSH);
            for _ in 0..items {
                sched.on_cpu().work(costs::PUSH_ITEM);
                cond_resched(sched);
            }
            let on = sched.on_cpu();
            let _ail = self.ail.lock(&on);
            on.work(costs::AIL_HELD);
        });
    }

    /// `xfs_trans_reserve` to `xfs_trans_commit`. The header buffer stays locked until the end.
    fn transaction(&self, sched: &Scheduler<M>, header: Option<&Semaphore<M>>) {
        let on = sched.on_cpu();
        on.work(costs::RESERVE);
        // ORDERING: Relaxed, all: the counts are never used. Only the transfers of their cache lines matter.
        on.cpu.fetch_add(&self.grant, 1, Relaxed);
        on.cpu.fetch_add(&self.grant, 1, Relaxed);
        if let Some(header) = header {
            header.down(sched);
            sched.on_cpu().work(costs::HEADER_HELD);
        }
        let on = sched.on_cpu();
        on.work(costs::COMMIT);
        let shares = on.system.config.rwlocks;
        if shares {
            self.context.read(sched);
        } else {
            on.cpu.fetch_add(&self.context_readers, 1, Relaxed);
        }
        let on = sched.on_cpu();
        self.cil.hold(&on, costs::CIL_HELD);
        if shares {
            self.context.read_unlock(&on);
        } else {
            on.cpu.fetch_add(&self.context_readers, 1, Relaxed);
        }
        if let Some(header) = header {
            header.up(&on);
        }
        self.commits.add(sched, 1);
    }
}
