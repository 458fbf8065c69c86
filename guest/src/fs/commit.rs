//! The kinds of change, and XFS's group commit: one task writes the log for all tasks that wait for it.
//!
//! Linux leaves the writing to a work queue. Here the first task that needs a commit does it, which saves one wakeup
//! and one switch for each commit.
//!
//! **No lost commit**: a change is part of the transaction that is open when the change is made. A commit closes the
//! open transaction before it writes, and is marked done after it has written.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
    /// A page of a `write` call that changes neither size nor times.
    Overwrite,
    /// A new file or directory.
    Create,
    /// A file's last name is removed.
    Remove,
    /// A file without a name is removed with its last reference.
    Evict {
        /// The file has blocks on the disk. Pages that were never written there have none.
        has_blocks: bool,
    },
    /// A name is changed or added.
    Rename,
    /// Blocks for pages that had none.
    Allocate,
    /// Size and times of the inode, after pages were written to blocks that it had.
    Written,
}

/// The commits of one log.
pub(super) struct Commits<M: Machine> {
    state: SpinLock<State, M>,
    /// The tasks that wait for the commit in progress.
    done: WaitQueue<M>,
    /// Changes since the last commit began. How many does not matter for **No lost commit**.
    changes: AtomicU32,
}

/// The state of a log.
struct State {
    /// The open transaction, from 1.
    open: u64,
    /// The last transaction that is written.
    committed: u64,
    is_committing: bool,
}

impl<M: Machine> Commits<M> {
    /// Makes a log whose state is under a lock of `class`.
    pub(super) fn new(class: LockClass) -> Self {
        let state = State {
            open: 1,
            committed: 0,
            is_committing: false,
        };
        Commits {
            state: SpinLock::new(class, state),
            done: WaitQueue::new(),
            changes: AtomicU32::new(0),
        }
    }

    /// Notes `changes` of the open transaction. A transaction's end takes no lock of the log (since 2.6.39).
    pub(super) fn add(&self, changes: u32) {
        self.changes.fetch_add(changes, Relaxed);
    }

    /// Takes the lock of the log's state for `ns` nanoseconds.
    pub(super) fn hold_state(&self, sched: &Scheduler<M>, ns: u64) {
        self.state.hold(&sched.on_cpu(), ns);
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
                let changes = self.changes.swap(0, Relaxed);
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
