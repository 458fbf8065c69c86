//! The kinds of change, and group commit: one task writes the journal for all tasks that wait for it.
//!
//! Linux leaves the writing to a thread (`jbd2`) or a work queue (XFS). Here the first task that needs a commit does
//! it, which saves one wakeup and one switch for each commit.
//!
//! **No lost commit**: a change is part of the transaction that is open when the change is made. A commit closes the
//! open transaction before it writes, and is marked done after it has written.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Platform, Word};

use crate::costs;
use crate::machine::Machine;
use crate::rwlock::RwLock;
use crate::sched::{OnCpu, Scheduler, WakeHint};
use crate::sync::WordOf;
use crate::task::state;
use crate::wait::WaitQueue;

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A `write` call: size and times of the inode.
    Write,
    /// A new file or directory.
    Create,
    /// A name is removed, and its file with it.
    Remove,
    /// A name is changed or added.
    Rename,
    /// Blocks for pages that had none.
    Allocate,
}

/// The commits of one journal.
pub(super) struct Commits<M: Machine> {
    state: RwLock<State, M>,
    /// Changes that readers of the state have added to the open transaction.
    joined: WordOf<M>,
    /// The tasks that wait for the commit in progress.
    done: WaitQueue<M>,
}

/// The state of a journal.
pub(super) struct State {
    /// The open transaction, from 1.
    open: u64,
    /// The last transaction that is written.
    committed: u64,
    is_committing: bool,
    /// Changes in the open transaction.
    changes: u32,
}

impl<M: Machine> Commits<M> {
    /// Makes a journal whose state is under the lock that `new_lock` makes.
    pub(super) fn new(new_lock: impl FnOnce(State) -> RwLock<State, M>) -> Self {
        let state = State {
            open: 1,
            committed: 0,
            is_committing: false,
            changes: 0,
        };
        Commits {
            state: new_lock(state),
            joined: WordOf::<M>::new(0),
            done: WaitQueue::new(),
        }
    }

    /// Joins the open transaction as a reader of its state, and runs `join`. Returns `false` if readers take no part in
    /// this kernel: then the caller [adds](Self::add) its changes.
    pub(super) fn join(&self, on: &OnCpu<'_, M>, changes: u32, join: impl FnOnce()) -> bool {
        let Some(_state) = self.state.read(on) else {
            return false;
        };
        join();
        // ORDERING: Relaxed; only a count.
        on.cpu.fetch_add(&self.joined, changes, Relaxed);
        true
    }

    /// Counts `changes` in the open transaction, under the journal's state lock.
    pub(super) fn add(&self, sched: &Scheduler<M>, changes: u32) {
        let on = sched.on_cpu();
        let mut state = self.state.write(&on);
        state.changes += changes;
        on.work(costs::JOURNAL_STATE);
    }

    /// Returns when all changes made before are written. `write` writes the given number of changes.
    pub(super) fn force(&self, sched: &Scheduler<M>, write: impl Fn(&Scheduler<M>, u32)) {
        let wanted = self.state.write(&sched.on_cpu()).open;
        loop {
            let on = sched.on_cpu();
            let mut state = self.state.write(&on);
            on.work(costs::JOURNAL_STATE);
            if state.committed >= wanted {
                return;
            }
            if state.is_committing {
                drop(state);
                self.wait(sched, wanted);
            } else {
                state.is_committing = true;
                state.open += 1;
                let mut changes = core::mem::take(&mut state.changes);
                if self.state.is_shared(&on) {
                    // ORDERING: Relaxed; only a count.
                    changes += on.cpu.swap(&self.joined, 0, Relaxed);
                }
                drop(state);
                write(sched, changes);
                self.end(sched);
            }
        }
    }

    /// Sleeps until the commit in progress is done.
    fn wait(&self, sched: &Scheduler<M>, wanted: u64) {
        self.done.sleep_unless(sched, state::UNINTERRUPTIBLE, |on| {
            let state = self.state.write(on);
            !state.is_committing || state.committed >= wanted
        });
    }

    fn end(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let mut state = self.state.write(&on);
        on.work(costs::JOURNAL_STATE);
        state.committed = state.open - 1;
        state.is_committing = false;
        drop(state);
        self.done.wake(&on, u32::MAX, WakeHint::Plain);
    }
}
