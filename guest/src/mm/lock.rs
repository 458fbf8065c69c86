//! The lock of an address space (`mmap_sem`, later `mmap_lock`): whom it keeps out, as that has changed over the years.
//!
//! Page faults read it, and so does giving pages back (madvise); whatever changes the mappings writes. So threads that fault
//! wait for each other's unmapping, TLB shootdown included; and where nobody writes, they still share the line of its count,
//! which each fault changes twice.

use core::sync::atomic::Ordering::{Acquire, Release};

use holdfast_locks::Platform;
use serde::{Deserialize, Serialize};

use super::space::{AddressSpace, own_space};
use crate::kernel::Kernel;
use crate::machine::Machine;

/// What the lock of an address space keeps out, and whether its waiters spin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MmapLock {
    /// Waiters sleep; unmapping holds it for writing until the end (to 3.15).
    #[default]
    Sleeping,
    /// Those who want to write spin while a writer runs (3.16, 4fc828e24cd9).
    Spinning,
    /// As before, and unmapping holds it for reading once the mappings are gone, while pages are given back and TLBs emptied
    /// (4.20, dd2283f2605e).
    Downgrading,
    /// As before, and page faults lock their own mapping instead (6.4, 0bff0aaea03e). Each thread's memory is a mapping of its
    /// own here; neighbours that Linux would merge are not.
    PerVma,
}

impl<M: Machine> AddressSpace<M> {
    /// Before a page fault of the caller's task. The caller may be on another CPU afterwards.
    pub(super) fn lock_for_fault(&self, kernel: &Kernel<M>) {
        if kernel.config.mmap_lock == MmapLock::PerVma {
            let on = kernel.on_cpu();
            // ORDERING: Acquire pairs with the Release in `unlock_after_fault`. Nobody else takes this mapping apart.
            on.cpu.fetch_add(&own_space(&on).mapping, 1, Acquire);
        } else {
            self.semaphore.read(kernel);
        }
    }

    /// After it.
    pub(super) fn unlock_after_fault(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        if kernel.config.mmap_lock == MmapLock::PerVma {
            // ORDERING: Release pairs with the Acquire in `lock_for_fault`.
            on.cpu.fetch_add(&own_space(&on).mapping, u32::MAX, Release);
        } else {
            self.semaphore.read_unlock(&on);
        }
    }

    /// Before the mappings change. The caller may be on another CPU afterwards.
    pub(super) fn lock_to_change(&self, kernel: &Kernel<M>) {
        self.semaphore
            .write(kernel, kernel.config.mmap_lock >= MmapLock::Spinning);
    }
}
