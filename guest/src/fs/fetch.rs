//! Reading files from the disk into the page cache.
//!
//! **One read**: the first reader of a file that is not in the page cache reads it. Others wait for that read.

use super::files::{CACHED, FileId, FileSystem};
use crate::block::Block;
use crate::machine::Machine;
use crate::sched::{OnCpu, Scheduler, WakeHint};
use crate::task::state;

/// They are on the disk only.
const ABSENT: u32 = 1;
/// A task reads them.
const COMES: u32 = 2;

impl<M: Machine> FileSystem<M> {
    /// The pages of `id` are on the disk only, unless a task reads them just now.
    pub(crate) fn drop_cached(&self, id: FileId) {
        let presence = &self.get(id).presence;
        if presence.get() == CACHED {
            presence.set(ABSENT);
        }
    }

    /// Returns when all `pages` pages of `id` are in the page cache.
    pub(crate) fn fetch(&self, sched: &Scheduler<M>, block: &Block<M>, id: FileId, pages: u32) {
        let file = self.get(id);
        while file.presence.get() != CACHED {
            let is_first = {
                let on = sched.on_cpu();
                let _tree = file.cache.lock_irq(&on);
                let found = file.presence.get();
                if found == ABSENT {
                    file.presence.set(COMES);
                }
                found == ABSENT
            };
            if is_first {
                block.read(sched, pages);
                file.presence.set(CACHED);
                block.readers().wake(&sched.on_cpu(), u32::MAX, WakeHint::Plain);
            } else {
                let is_over = |_: &OnCpu<'_, M>| file.presence.get() == CACHED;
                block.readers().sleep_unless(sched, state::UNINTERRUPTIBLE, is_over);
            }
        }
    }
}
