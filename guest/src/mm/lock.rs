//! The lock of an address space (`mmap_sem`, later `mmap_lock`), whose use has changed over the years: [`MmapLock`].
//!
//! Page faults read it, and so does giving pages back (madvise). Every change of the mappings writes it. So threads
//! that fault wait for each other's unmapping, TLB shootdown included. Where no thread writes, they still share the
//! cache line of the count, which each fault changes twice.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use holdfast_locks::Platform;

use crate::config::MmapLock;
use crate::machine::Machine;
use crate::rwsem::RwSemaphore;
use crate::sched::{OnCpu, Scheduler};
use crate::sync::WordOf;

/// The lock of one address space.
pub(super) struct SpaceLock<M: Machine> {
    /// Linux's `mmap_sem`.
    pub(super) semaphore: RwSemaphore<M>,
    /// Set while a task changes the mappings, which no other task may use then. Checks the lock.
    changing: AtomicBool,
}

impl<M: Machine> SpaceLock<M> {
    pub(super) fn new() -> Self {
        SpaceLock {
            semaphore: RwSemaphore::new(),
            changing: AtomicBool::new(false),
        }
    }

    /// Locks the address space, or `mapping`, for a page fault of the caller's task. The caller may be on another CPU
    /// afterwards.
    pub(super) fn lock_for_fault(&self, sched: &Scheduler<M>, mapping: &WordOf<M>) {
        if sched.system.config.mmap_lock == MmapLock::PerVma {
            let on = sched.on_cpu();
            // ORDERING: Acquire pairs with the Release in `unlock_after_fault`. Only the owner changes this mapping.
            on.cpu.fetch_add(mapping, 1, Acquire);
        } else {
            self.semaphore.read(sched);
        }
    }

    /// Ends [`SpaceLock::lock_for_fault`].
    pub(super) fn unlock_after_fault(&self, sched: &Scheduler<M>, mapping: &WordOf<M>) {
        let on = sched.on_cpu();
        if on.system.config.mmap_lock == MmapLock::PerVma {
            // ORDERING: Release pairs with the Acquire in `lock_for_fault`.
            on.cpu.fetch_add(mapping, u32::MAX, Release);
        } else {
            self.semaphore.read_unlock(&on);
        }
    }

    /// Panics if the mappings are being changed. A page fault that excludes changes calls it when it begins and ends.
    pub(super) fn assert_unchanged(&self, sched: &Scheduler<M>) {
        assert!(
            sched.system.config.mmap_lock == MmapLock::PerVma || !self.changing.load(Relaxed),
            "an address space is changed during a page fault"
        );
    }

    /// Waits until only the caller may change the mappings. The caller may be on another CPU afterwards.
    pub(super) fn begin_change(&self, sched: &Scheduler<M>) {
        self.semaphore
            .write(sched, sched.system.config.mmap_lock >= MmapLock::Spinning);
        assert!(!self.changing.swap(true, Relaxed), "two tasks change one address space");
    }

    /// Notes that the mappings are changed. The caller still holds the lock for writing, to free the pages.
    pub(super) fn end_change(&self) {
        self.changing.store(false, Relaxed);
    }

    /// Keeps the lock only for reading, if the kernel does that while it frees pages. Returns `true` if so.
    pub(super) fn downgrade_to_free(&self, on: &OnCpu<'_, M>) -> bool {
        let downgrades = on.system.config.mmap_lock >= MmapLock::Downgrading;
        if downgrades {
            self.semaphore.downgrade(on);
        }
        downgrades
    }
}
