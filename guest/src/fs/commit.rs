//! Group commit: one task writes the journal for all that wait for it.
//!
//! Linux leaves the writing to a thread (`jbd2`) or a work queue (XFS); here the first who needs a commit does it, which
//! saves one wake-up and one switch a commit.
//!
//! **No lost commit**: a change is part of the transaction that is open when it is made; a commit closes the open one
//! before it writes, and says that it is done after.

use crate::class::LockClass;
use crate::costs;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitQueue;

/// The commits of one journal.
pub(super) struct Commits<M: Machine> {
    state: SpinLock<State, M>,
    /// Who waits for the commit that is under way.
    done: WaitQueue<M>,
}

struct State {
    /// The open transaction, from 1.
    open: u64,
    /// The last one that is written.
    committed: u64,
    is_committing: bool,
    /// Changes in the open transaction.
    changes: u32,
}

impl<M: Machine> Commits<M> {
    /// A journal whose state is under a lock of `class`.
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
    pub(super) fn add(&self, kernel: &Kernel<M>, changes: u32) {
        let on = kernel.on_cpu();
        let mut state = self.state.lock(&on);
        state.changes += changes;
        on.work(costs::JOURNAL_STATE);
    }

    /// Returns when all that was changed before is written. `write` writes so many changes.
    pub(super) fn force(&self, kernel: &Kernel<M>, write: impl Fn(&Kernel<M>, u32)) {
        let wanted = self.state.lock(&kernel.on_cpu()).open;
        loop {
            match self.begin(kernel, wanted) {
                Step::Done => return,
                Step::Write(changes) => {
                    write(kernel, changes);
                    self.end(kernel);
                }
                Step::Wait => self.wait(kernel, wanted),
            }
        }
    }

    fn begin(&self, kernel: &Kernel<M>, wanted: u64) -> Step {
        let on = kernel.on_cpu();
        let mut state = self.state.lock(&on);
        on.work(costs::JOURNAL_STATE);
        if state.committed >= wanted {
            Step::Done
        } else if state.is_committing {
            Step::Wait
        } else {
            state.is_committing = true;
            state.open += 1;
            Step::Write(core::mem::take(&mut state.changes))
        }
    }

    fn end(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        {
            let mut state = self.state.lock(&on);
            on.work(costs::JOURNAL_STATE);
            state.committed = state.open - 1;
            state.is_committing = false;
        }
        self.done.wake(&on, u32::MAX, WakeHint::Plain);
    }

    /// Sleeps until the commit that is under way is done.
    fn wait(&self, kernel: &Kernel<M>, wanted: u64) {
        let on = kernel.on_cpu();
        self.done.prepare(&on, state::UNINTERRUPTIBLE);
        let goes_on = {
            let state = self.state.lock(&on);
            state.is_committing && state.committed < wanted
        };
        if goes_on {
            sched::schedule(kernel);
        }
        self.done.finish(&kernel.on_cpu());
    }
}

enum Step {
    Done,
    Write(u32),
    Wait,
}
