//! jbd2, the journal of ext4, as of Linux 3.14: handles, transactions and their commits.
//!
//! A task changes metadata under a *handle*, which belongs to the running transaction. The first task that needs a
//! commit does it, for all tasks that wait for it. (Linux leaves that to a thread, at the price of one wakeup and one
//! switch for each commit.) A commit (`jbd2_journal_commit_transaction`):
//!
//! 1. closes the running transaction: new handles wait (`T_LOCKED`), and the commit waits for those that there are;
//! 2. looks at the blocks that wait for their checkpoint, opens the next transaction and wakes the waiting handles, all
//!    as the writer of `j_state_lock`;
//! 3. prepares all blocks, and then writes them to the log. A handle that wants to change a block in between waits
//!    (`BH_Shadow`). If it comes before the block is prepared, it makes a copy for the log;
//! 4. moves the blocks from list to list, and wakes the tasks that wait for the commit.
//!
//! - **No handle in a closed transaction**: a handle counts itself and then looks whether the transaction is closed. A
//!   commit closes the transaction and then looks at the count. Both are sequentially consistent. Readers of
//!   `j_state_lock` exclude the commit as well.
//! - **No deadlock**: a task with a handle waits for other handles of the running transaction (for a mutex), or for
//!   step 3 of a commit, which waits for no handle. Handles do not nest.
//! - **No lost commit**: a change is filed in the transaction of its handle. A commit is marked as done after it has
//!   written all blocks that are filed in its transaction.
//!
//! Deliberately missing: the log's end (a full log waits for checkpoints), and more than one descriptor in a commit.

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use holdfast_locks::{Platform, Word};

use crate::class::{Event, LockClass};
use crate::costs::{COPY_PAGE, JOURNAL_STATE, ext4 as costs};
use crate::local::Shared32;
use crate::machine::Machine;
use crate::rwlock::RwLock;
use crate::sched::{self, OnCpu, Scheduler, WakeHint, cond_resched};
use crate::sync::{SpinLock, WordOf};
use crate::task::state;
use crate::wait::WaitQueue;

/// Wait queues for blocks on their way to the log: a table of hashes, as for all bits that Linux waits for.
const SHADOW_QUEUES: usize = 64;

/// The journal of one file system.
pub(super) struct Journal<M: Machine> {
    /// `j_state_lock`, with its value.
    state: RwLock<State, M>,
    /// `j_state_lock` as its readers take it where they take no part in it: they move its cache line.
    state_readers: WordOf<M>,
    /// `t_updates`: the handles of the running transaction.
    updates: WordOf<M>,
    /// Not 0: the running transaction is closed to new handles.
    closed: WordOf<M>,
    /// The number of the running transaction, from 1. Written by the writer of the state.
    running: AtomicU32,
    /// The last transaction that is committed. Written by the writer of the state.
    committed: AtomicU32,
    /// `j_wait_updates`: a commit waits for the last handle.
    last_update: WaitQueue<M>,
    /// `j_wait_transaction_locked`: handles wait for the next transaction.
    opened: WaitQueue<M>,
    /// `j_wait_done_commit`: tasks wait for a commit.
    done: WaitQueue<M>,
    /// `j_list_lock`: the lists of buffers.
    list: SpinLock<(), M>,
    buffers: Box<[Buffer<M>]>,
    /// The buffers of the last even and the last odd transaction: the first one's index + 1.
    filed: [AtomicU32; 2],
    /// Handles wait for a buffer that is on its way to the log.
    shadows: Box<[WaitQueue<M>]>,
}

struct State {
    is_committing: bool,
}

/// A block of metadata in memory.
struct Buffer<M: Machine> {
    /// Its state (`b_state`), a bit of which is a spinlock. It is held so shortly that only the line's transfer counts.
    state: WordOf<M>,
    /// The transaction in which it was filed last. 0: none.
    transaction: AtomicU32,
    /// The transaction for which it was last prepared for the log.
    prepared: AtomicU32,
    /// Not 0: it is on its way to the log, and must not change.
    is_shadow: Shared32,
    /// The next buffer's index + 1, in the list of an even and of an odd transaction.
    next: [AtomicU32; 2],
}

impl<M: Machine> Journal<M> {
    /// Makes the journal of a file system with `blocks` blocks of metadata.
    pub(super) fn new(blocks: usize) -> Self {
        Journal {
            state: RwLock::new(LockClass::JournalState, State { is_committing: false }),
            state_readers: WordOf::<M>::new(0),
            updates: WordOf::<M>::new(0),
            closed: WordOf::<M>::new(0),
            running: AtomicU32::new(1),
            committed: AtomicU32::new(0),
            last_update: WaitQueue::new(),
            opened: WaitQueue::new(),
            done: WaitQueue::new(),
            list: SpinLock::new(LockClass::JournalList, ()),
            buffers: (0..blocks).map(|_| Buffer::new()).collect(),
            filed: [const { AtomicU32::new(0) }; 2],
            shadows: (0..SHADOW_QUEUES).map(|_| WaitQueue::new()).collect(),
        }
    }

    /// Begins a handle (`start_this_handle`). May sleep.
    pub(super) fn start(&self, sched: &Scheduler<M>) {
        while !self.join(&sched.on_cpu()) {
            sched.on_cpu().local.count(Event::TransactionWaits);
            let is_open = |on: &OnCpu<'_, M>| on.cpu.load(&self.closed, SeqCst) == 0;
            self.opened.sleep_unless(sched, state::UNINTERRUPTIBLE, is_open);
        }
    }

    /// Joins the running transaction. Returns `false` if it is closed.
    fn join(&self, on: &OnCpu<'_, M>) -> bool {
        let Some(_state) = self.state.read(on) else {
            // ORDERING: Relaxed, both: only the transfers of the line matter.
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
            let is_joined = self.count_in(on);
            on.cpu.fetch_add(&self.state_readers, 1, Relaxed);
            return is_joined;
        };
        self.count_in(on)
    }

    fn count_in(&self, on: &OnCpu<'_, M>) -> bool {
        // ORDERING: SeqCst, all: **No handle in a closed transaction**.
        if on.cpu.load(&self.closed, SeqCst) != 0 {
            return false;
        }
        on.cpu.fetch_add(&self.updates, 1, SeqCst);
        let is_open = on.cpu.load(&self.closed, SeqCst) == 0;
        if !is_open {
            self.stop(on);
        }
        is_open
    }

    /// Ends a handle (`jbd2_journal_stop`).
    pub(super) fn stop(&self, on: &OnCpu<'_, M>) {
        // ORDERING: SeqCst: the commit sees what the handle filed.
        if on.cpu.fetch_add(&self.updates, u32::MAX, SeqCst) == 1 {
            self.last_update.wake(on, 1, WakeHint::Plain);
        }
    }

    /// Changes block number `block` under the caller's handle (`jbd2_journal_get_write_access` and
    /// `jbd2_journal_dirty_metadata`). May sleep.
    pub(super) fn change(&self, sched: &Scheduler<M>, block: usize) {
        let buffer = &self.buffers[block];
        // ORDERING: Relaxed, here and below: the handle keeps the number as it is.
        let running = self.running.load(Relaxed);
        sched.on_cpu().work(costs::BUFFER);
        loop {
            buffer.lock_state(&sched.on_cpu());
            if buffer.transaction.load(Relaxed) == running || buffer.is_shadow.get() == 0 {
                break;
            }
            sched.on_cpu().local.count(Event::LogWaits);
            let is_written = |_: &OnCpu<'_, M>| buffer.is_shadow.get() == 0;
            self.shadow_queue(block)
                .sleep_unless(sched, state::UNINTERRUPTIBLE, is_written);
        }
        let on = sched.on_cpu();
        buffer.lock_state(&on);
        let still = self.running.load(Relaxed);
        assert_eq!(still, running, "transaction {running} was closed under a handle");
        // ORDERING: Relaxed: one of the handles that change the buffer gets the old number.
        let before = buffer.transaction.swap(running, Relaxed);
        if before == running {
            return;
        }
        if before + 1 == running && self.committed.load(Relaxed) < before {
            // The commit hands it to the next transaction at its end.
            if buffer.prepared.load(Relaxed) != before {
                on.local.count(Event::LogCopies);
                on.work(COPY_PAGE);
            }
        } else {
            for held in costs::FILE_HELD {
                self.list.hold(&on, held);
            }
        }
        self.file(running, block);
    }

    /// Adds a buffer to the list of a transaction that has a handle.
    fn file(&self, transaction: u32, block: usize) {
        let (parity, added) = ((transaction % 2) as usize, block as u32 + 1);
        let mut first = self.filed[parity].load(Relaxed);
        loop {
            self.buffers[block].next[parity].store(first, Relaxed);
            // ORDERING: AcqRel: a commit that finds the buffer finds the next one, too.
            match self.filed[parity].compare_exchange(first, added, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// The buffers of a closed transaction, of which there is one at a time, and their indices.
    fn filed(&self, transaction: u32) -> impl Iterator<Item = (usize, &Buffer<M>)> {
        let parity = (transaction % 2) as usize;
        let buffer = |link: u32| link.checked_sub(1).map(|block| block as usize);
        let mut next = buffer(self.filed[parity].load(Acquire));
        core::iter::from_fn(move || {
            let block = next?;
            next = buffer(self.buffers[block].next[parity].load(Relaxed));
            Some((block, &self.buffers[block]))
        })
    }

    fn shadow_queue(&self, block: usize) -> &WaitQueue<M> {
        &self.shadows[block % SHADOW_QUEUES]
    }

    /// Returns when all changes that were made under ended handles are in the log (`jbd2_complete_transaction`).
    pub(super) fn force(&self, sched: &Scheduler<M>) {
        // ORDERING: Relaxed: the caller's last handle was of this transaction or of an earlier one.
        let wanted = self.running.load(Relaxed);
        loop {
            let on = sched.on_cpu();
            let is_committed = {
                let _state = self.state.read(&on);
                self.is_committed(wanted)
            };
            if is_committed {
                return;
            }
            let mut state = self.state.write(&on);
            on.work(JOURNAL_STATE);
            if self.is_committed(wanted) {
                return;
            }
            let before = self.committed.load(Relaxed);
            if core::mem::replace(&mut state.is_committing, true) {
                drop(state);
                self.done
                    .sleep_unless(sched, state::UNINTERRUPTIBLE, |_| self.is_committed(before + 1));
            } else {
                drop(state);
                self.commit(sched);
            }
        }
    }

    fn is_committed(&self, transaction: u32) -> bool {
        // ORDERING: Acquire: the caller sees what the commit did, also where it does not hold the state's lock.
        self.committed.load(Acquire) >= transaction
    }

    fn commit(&self, sched: &Scheduler<M>) {
        let transaction = self.close(sched);
        self.write(sched, transaction);
        sched.on_cpu().work(costs::COMMIT);
        for _ in self.filed(transaction) {
            for held in costs::CHECKPOINT_HELD {
                self.list.hold(&sched.on_cpu(), held);
            }
            cond_resched(sched);
        }
        let on = sched.on_cpu();
        on.local.count(Event::JournalCommits);
        {
            let mut state = self.state.write(&on);
            on.work(JOURNAL_STATE);
            // ORDERING: Release pairs with the Acquire in `is_committed`. The list's end needs none: the next handle
            // that files into it begins after a later commit has closed a transaction.
            self.filed[(transaction % 2) as usize].store(0, Relaxed);
            self.committed.store(transaction, Release);
            state.is_committing = false;
        }
        self.done.wake(&on, u32::MAX, WakeHint::Plain);
    }

    /// Closes the running transaction and opens the next one. Returns the number of the closed one.
    fn close(&self, sched: &Scheduler<M>) -> u32 {
        loop {
            let on = sched.on_cpu();
            let state = self.state.write(&on);
            // ORDERING: SeqCst, all: **No handle in a closed transaction**.
            on.cpu.swap(&self.closed, 1, SeqCst);
            let is_quiet = || on.cpu.load(&self.updates, SeqCst) == 0;
            if is_quiet() {
                return self.open_next(&on);
            }
            self.last_update.prepare(&on, state::UNINTERRUPTIBLE);
            let sleeps = !is_quiet();
            drop(state);
            if sleeps {
                sched::schedule(sched);
            }
            self.last_update.finish(&sched.on_cpu());
        }
    }

    /// Opens the transaction after the running one, which has no handles. The caller writes the state. Returns the
    /// number of the transaction that was running.
    fn open_next(&self, on: &OnCpu<'_, M>) -> u32 {
        self.clean_checkpoints(on);
        // ORDERING: Relaxed: the store to `closed` publishes it.
        let transaction = self.running.load(Relaxed);
        self.running.store(transaction + 1, Relaxed);
        on.cpu.store(&self.closed, 0, SeqCst);
        self.opened.wake(on, u32::MAX, WakeHint::Plain);
        transaction
    }

    /// Looks for buffers of past transactions that are written back meanwhile, with `j_list_lock` held
    /// (`__jbd2_journal_clean_checkpoint_list`). Nothing is written back within seconds, so it looks at all of them in
    /// vain. Since 3.18 it stops at the first (841df7df1962, version uncertain).
    fn clean_checkpoints(&self, on: &OnCpu<'_, M>) {
        let _list = self.list.lock(on);
        // ORDERING: Relaxed: plain memory.
        let filed = self
            .buffers
            .iter()
            .filter(|buffer| buffer.transaction.load(Relaxed) != 0);
        for buffer in filed {
            on.cpu.load(&buffer.state, Relaxed);
            if on.local.need_resched.get() != 0 {
                return;
            }
        }
    }

    /// Writes the buffers of a closed transaction to the log.
    fn write(&self, sched: &Scheduler<M>, transaction: u32) {
        let on = sched.on_cpu();
        for (_, buffer) in self.filed(transaction) {
            buffer.lock_state(&on);
            // ORDERING: Relaxed: a hint, on which only the cost of a copy depends.
            buffer.prepared.store(transaction, Relaxed);
            self.list.hold(&on, costs::SHADOW_HELD);
            buffer.is_shadow.set(1);
            on.work(costs::PREPARE_BUFFER);
        }
        for (block, buffer) in self.filed(transaction) {
            on.work(costs::WRITE_BUFFER);
            buffer.lock_state(&on);
            buffer.is_shadow.set(0);
            let queue = self.shadow_queue(block);
            if !queue.is_idle() {
                queue.wake(&on, u32::MAX, WakeHint::Plain);
            }
        }
        for _ in self.filed(transaction) {
            self.list.hold(&sched.on_cpu(), costs::WRITTEN_HELD);
            cond_resched(sched);
        }
    }
}

impl<M: Machine> Buffer<M> {
    fn new() -> Self {
        Buffer {
            state: WordOf::<M>::new(0),
            transaction: AtomicU32::new(0),
            prepared: AtomicU32::new(0),
            is_shadow: Shared32::new(0),
            next: [const { AtomicU32::new(0) }; 2],
        }
    }

    /// `jbd_lock_bh_state`, and back.
    fn lock_state(&self, on: &OnCpu<'_, M>) {
        // ORDERING: Relaxed: the value is never used.
        on.cpu.fetch_add(&self.state, 1, Relaxed);
    }
}
