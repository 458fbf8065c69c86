//! XFS as of Linux 3.14: which locks a change takes, and for how long.
//!
//! Log space is reserved without a lock. Changes are gathered on per-transaction lists, and enter the log's list in one
//! short critical section. Data are written without a transaction. Tasks contend for the header buffers of an
//! allocation group, whose locks are semaphores: their waiters sleep, and a release hands over.
//!
//! How many buffers an operation locks, and the times of locks, are measured under Linux 6.1 (`docs/spec/costs.md`).
//! What differs in 3.14: the log's list has a lock, which became one list for each CPU in 6.0. A buffer is found in a
//! tree under the group's lock, since 4.10 in a hash table without (6031e73a5b5f, uncertain). A removed file's inode is
//! freed at once, and not by a worker (since 5.14).

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use super::commit::{Change, Commits};
use crate::class::LockClass;
use crate::config::MmapLock;
use crate::costs::{self as kernel, xfs as costs};
use crate::machine::Machine;
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
    /// Linux's `xc_push_lock`.
    push: SpinLock<(), M>,
    groups: Box<[Group<M>]>,
}

/// An allocation group: its header buffers, and what its blocks and inodes share.
struct Group<M: Machine> {
    inodes: Semaphore<M>,
    blocks: Semaphore<M>,
    /// Linux's `pag_buf_lock`.
    buffers: SpinLock<(), M>,
    /// Linux's `pag_ici_lock`.
    incore: SpinLock<(), M>,
    /// The semaphore locks of buffers below a header or a directory. Nothing waits for these semaphores.
    below: [SpinLock<(), M>; costs::BUFFERS_BELOW],
}

/// What a transaction changes besides inodes.
struct Changed<'a, M: Machine> {
    group: &'a Group<M>,
    header: Option<&'a Semaphore<M>>,
    /// Buffers besides the header.
    buffers: usize,
}

impl<M: Machine> Xfs<M> {
    pub(super) fn new() -> Self {
        let group = |_| Group {
            inodes: Semaphore::new(),
            blocks: Semaphore::new(),
            buffers: SpinLock::new(LockClass::BufferCache, ()),
            incore: SpinLock::new(LockClass::InodeCache, ()),
            below: core::array::from_fn(|_| SpinLock::new(LockClass::Semaphore, ())),
        };
        Xfs {
            grant: WordOf::<M>::new(0),
            context: RwSemaphore::new(),
            context_readers: WordOf::<M>::new(0),
            cil: SpinLock::new(LockClass::Cil, ()),
            ail: SpinLock::new(LockClass::Ail, ()),
            commits: Commits::new(LockClass::Iclog),
            push: SpinLock::new(LockClass::CilPush, ()),
            groups: (0..costs::GROUPS).map(group).collect(),
        }
    }

    /// Carries out `change` of a file in directory number `directory`. A directory's files are in its group.
    pub(super) fn change(&self, sched: &Scheduler<M>, directory: u32, change: Change) {
        let group = &self.groups[(directory % costs::GROUPS) as usize];
        let with = |header, buffers| Changed { group, header, buffers };
        let (inodes, blocks) = (Some(&group.inodes), Some(&group.blocks));
        match change {
            Change::Write | Change::Written => self.transaction(sched, &with(None, 0)),
            Change::Rename => self.transaction(sched, &with(None, costs::NAME_BUFFERS)),
            Change::Create => {
                self.transaction(sched, &with(inodes, costs::CREATE_BUFFERS));
                group.incore.hold(&sched.on_cpu(), costs::INCORE_HELD);
            }
            Change::Overwrite => {}
            Change::Remove => self.transaction(sched, &with(inodes, costs::NAME_BUFFERS)),
            // Inactivation: blocks, then the inode.
            Change::Evict { has_blocks } => {
                if has_blocks {
                    self.transaction(sched, &with(blocks, costs::ALLOCATE_BUFFERS));
                }
                self.transaction(sched, &with(inodes, costs::FREE_BUFFERS));
                // The inode is marked as reclaimable, and reclaimed.
                group.incore.hold(&sched.on_cpu(), costs::INCORE_HELD);
                group.incore.hold(&sched.on_cpu(), costs::INCORE_HELD);
            }
            Change::Allocate => self.transaction(sched, &with(blocks, costs::ALLOCATE_BUFFERS)),
        }
    }

    /// Returns when all changes made so far are in the log.
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        self.commits.force(sched, |sched, items| {
            let items = items.min(costs::PUSH_ITEMS_MAX);
            if sched.system.config.readers_share() {
                let spins = sched.system.config.mmap_lock >= MmapLock::Spinning;
                self.context.write(sched, spins);
                let on = sched.on_cpu();
                on.work(costs::CONTEXT_ITEM * u64::from(items));
                self.context.write_unlock(&on);
            }
            sched.on_cpu().work(costs::PUSH);
            for held in costs::PUSH_HELD {
                self.push.hold(&sched.on_cpu(), held);
            }
            for held in costs::ICLOG_HELD {
                self.commits.hold_state(sched, held);
            }
            for _ in 0..items {
                sched.on_cpu().work(costs::PUSH_ITEM);
                cond_resched(sched);
            }
            let on = sched.on_cpu();
            let _ail = self.ail.lock(&on);
            on.work(costs::AIL_HELD);
        });
    }

    /// `xfs_trans_reserve` to `xfs_trans_commit`. The buffers stay locked until the end.
    fn transaction(&self, sched: &Scheduler<M>, changed: &Changed<'_, M>) {
        let on = sched.on_cpu();
        on.work(costs::RESERVE);
        // ORDERING: Relaxed, all: the counts are never used. Only the transfers of their cache lines matter.
        on.cpu.fetch_add(&self.grant, 1, Relaxed);
        on.cpu.fetch_add(&self.grant, 1, Relaxed);
        let Changed { group, header, buffers } = changed;
        if let Some(header) = header {
            group.buffers.hold(&on, costs::LOOKUP_HELD);
            header.down(sched);
            sched.on_cpu().work(costs::HEADER_HELD);
        }
        let on = sched.on_cpu();
        for below in &group.below[..*buffers] {
            group.buffers.hold(&on, costs::LOOKUP_HELD);
            below.hold_irq(&on, kernel::SEMAPHORE);
        }
        on.work(costs::COMMIT);
        let shares = on.system.config.readers_share();
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
        for below in &group.below[..*buffers] {
            below.hold_irq(&on, kernel::SEMAPHORE);
        }
        if let Some(header) = header {
            header.up(&on);
        }
        self.commits.add(1);
    }
}
