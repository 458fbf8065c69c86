//! The kinds of change, and group commit: one task writes the journal for all tasks that wait for it.
//!
//! Linux leaves the writing to a thread (`jbd2`) or a work queue (XFS). Here the first task that needs a commit does
//! it, which saves one wakeup and one switch for each commit.
//!
//! **No lost commit**: a change is part of the transaction that is open when the change is made. A commit closes the
//! open transaction before it writes, and is marked done after it has written.

use crate::class::LockClass;
use crate::costs;
use crate::machine::Machine;
use crate::sched::{Scheduler, WakeHint};
use crate::sync::SpinLock;
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
    state: SpinLock<State, M>,
    /// The tasks that wait for the commit in progress.
    done: WaitQueue<M>,
}

struct State {
    /// The open transaction, from 1.
    open: u64,
    /// The last transaction that is written.
    committed: u64,
    is_committing: bool,
    /// Changes in the open transaction.
    changes: u32,
}

impl<M: Machine> Commits<M> {
    /// Makes a journal whose state is under a lock of `class`.
    pub(super) fn new(class: LockClass) -> Self {
        let state = State {
            open: 1,
            committed: 0,
            is_committing: false,
            changes: 0,
        };
        Commits {
            state: SpinLock::new(class, state),
            done: WaitQueue::new(),
        }
    }

    /// Counts `changes` in the open transaction, under the journal's state lock.
    pub(super) fn add(&self, sched: &Scheduler<M>, changes: u32) {
        let on = sched.on_cpu();
        let mut state = self.state.lock(&on);
        state.changes += changes;
        on.work(costs::JOURNAL_STATE);
    }

    /// Returns when all changes made before are written. `write` writes the given number of changes.
    pub(super) fn force(&self, sched: &Scheduler<M>, write: impl Fn(&Scheduler<M>, u32)) {
        let wanted = self.state.lock(&sched.on_cpu()).open;
        loop {
            let on = sched.on_cpu();
            let mut state = self.state.lock(&on);
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
                let changes = core::mem::take(&mut state.changes);
                drop(state);
                write(sched, changes);
                self.end(sched);
            }
        }
    }

    /// Sleeps until the commit in progress is done.
    fn wait(&self, sched: &Scheduler<M>, wanted: u64) {
        self.done.sleep_unless(sched, state::UNINTERRUPTIBLE, |on| {
            let state = self.state.lock(on);
            !state.is_committing || state.committed >= wanted
        });
    }

    fn end(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let mut state = self.state.lock(&on);
        on.work(costs::JOURNAL_STATE);
        state.committed = state.open - 1;
        state.is_committing = false;
        drop(state);
        self.done.wake(&on, u32::MAX, WakeHint::Plain);
    }
}
