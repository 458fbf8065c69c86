//! Row locks, which are held from a transaction's update to its end.

use alloc::collections::VecDeque;

use holdfast_guest::{Machine, Os};

use super::Database;

/// The lock of one row.
#[derive(Debug, Default)]
pub(super) struct Row {
    is_taken: bool,
    /// Backends that wait for the transaction that holds it, in the order of their arrival.
    queue: VecDeque<u32>,
}

impl<M: Machine> Database<M> {
    /// Takes the row of `branch` for the transaction of `backend`.
    pub(super) fn take_row(&self, os: &Os<M>, backend: u32, branch: usize) {
        {
            let mut row = self.branches[branch].lock(os);
            if !row.is_taken {
                row.is_taken = true;
                return;
            }
            row.queue.push_back(backend);
        }
        // The holder hands it over when it releases it.
        self.sleep(os, backend);
    }

    /// Releases the row of `branch` at the end of the transaction, and hands it to the next backend.
    pub(super) fn release_row(&self, os: &Os<M>, branch: usize) {
        let next = {
            let mut row = self.branches[branch].lock(os);
            let next = row.queue.pop_front();
            row.is_taken = next.is_some();
            next
        };
        if let Some(backend) = next {
            self.wake(os, backend);
        }
    }
}
