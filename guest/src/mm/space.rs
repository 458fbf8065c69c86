//! Address spaces: page tables, faults, fork's copy, and teardown.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::Word;

use super::lock::SpaceLock;
use crate::class::{Event, LockClass};
use crate::costs;
use crate::ids::{TaskId, TaskTable};
use crate::local::Local32;
use crate::machine::Machine;
use crate::measured::Step;
use crate::pages::batches;
use crate::sched::{OnCpu, Scheduler, cond_resched};
use crate::sync::{SpinLock, WordOf};

/// The address spaces. Each task's slot has one.
pub(crate) struct Spaces<M: Machine> {
    slots: TaskTable<AddressSpace<M>>,
}

/// An address space. Threads and vfork children use another task's. Of their own slot they use only what each thread
/// has: its page table and its mapping.
struct AddressSpace<M: Machine> {
    lock: SpaceLock<M>,
    mapped: Mapped,
    /// Threads that it has had besides the first.
    threads: AtomicU32,

    // What each thread has of its own.
    /// The lock of the page table where the slot's task allocates: the heap of a process, or a thread's arena, for each
    /// of which the C library reserves 64 MiB of addresses.
    table: SpinLock<(), M>,
    /// The lock of its mapping, which page faults take with [`MmapLock::PerVma`](crate::config::MmapLock).
    mapping: WordOf<M>,
    /// The number of this thread of its address space, in the order of creation. The main thread is 0.
    thread: Local32,
    /// Pages of the mapping that the thread works in. 0: it works in its heap.
    mapped_pages: Local32,
}

/// Entries of a page table.
const PAGES_OF_TABLE: u64 = 512;

/// What is mapped, in pages. Linux counts in each task and sums up every 64 pages (`SPLIT_RSS_COUNTING`), so counting
/// causes no waiting.
#[derive(Debug, Default)]
struct Mapped {
    anonymous: AtomicU32,
    file: AtomicU32,
    /// Page-table pages.
    tables: AtomicU32,
}

/// Kinds of page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// First touch of anonymous memory: a zeroed page.
    Anonymous,
    /// Write to a page shared since a fork: a copy.
    CopyOnWrite,
    /// A file's page that is in the page cache.
    File,
}

impl<M: Machine> Spaces<M> {
    pub(crate) fn new(tasks: u32) -> Self {
        Spaces {
            slots: TaskTable::new(tasks, |_| AddressSpace {
                lock: SpaceLock::new(),
                mapped: Mapped::default(),
                threads: AtomicU32::new(0),
                table: SpinLock::new(LockClass::PageTable, ()),
                mapping: WordOf::<M>::new(0),
                thread: Local32::new(0),
                mapped_pages: Local32::new(0),
            }),
        }
    }

    /// Prepares the slot of the new task `id`, which is a thread of an address space, or the main thread of its own.
    pub(crate) fn start(&self, id: TaskId, thread_of: Option<TaskId>) {
        let own = &self.slots[id];
        let number = |space: TaskId| self.slots[space].threads.fetch_add(1, Relaxed) + 1;
        own.thread.set(thread_of.map_or(0, number));
        own.mapped_pages.set(0);
    }

    fn get(&self, owner: TaskId) -> &AddressSpace<M> {
        &self.slots[owner]
    }

    /// The lock of the page table where the caller's task touches memory. That is its heap's, or one in the area of
    /// mappings, where equal mappings of threads are adjacent, several in a table.
    fn table_lock<'a>(&'a self, on: &OnCpu<'a, M>) -> &'a SpinLock<(), M> {
        let own = &self.slots[on.current()];
        match own.mapped_pages.get() {
            0 => &own.table,
            pages => {
                let first = u64::from(own.thread.get()) * u64::from(pages);
                on.sched.memory.table_lock((first / PAGES_OF_TABLE) as u32)
            }
        }
    }

    /// Handles one page fault of the caller's task.
    pub(crate) fn fault(&self, sched: &Scheduler<M>, kind: Fault) {
        let on = sched.on_cpu();
        on.local.count(Event::PageFaults);
        let task = on.current();
        let owner = sched.tlbs.space_of(task);
        let space = self.get(owner);
        let mapping = &self.get(task).mapping;
        space.lock.lock_for_fault(sched, mapping);
        let on = sched.on_cpu();
        space.lock.assert_unchanged(sched);
        let work = match kind {
            Fault::Anonymous => costs::CLEAR_PAGE,
            Fault::CopyOnWrite => costs::COPY_PAGE,
            Fault::File => 0,
        };
        let step = match kind {
            Fault::Anonymous => Step::ANONYMOUS_FAULT,
            Fault::CopyOnWrite => Step::COPY_FAULT,
            Fault::File => Step::FILE_FAULT,
        };
        if kind != Fault::File {
            // ORDERING: Relaxed: a count.
            let of_space = space.mapped.anonymous.load(Relaxed) + 1;
            on.sched.memory.touch(&on, owner, of_space);
        }
        let on = sched.on_cpu();
        let table = self.table_lock(&on);
        if on.measured(step, |class| (class == LockClass::PageTable).then_some(table)) {
            let mapped = &space.mapped;
            let count = if kind == Fault::File {
                &mapped.file
            } else {
                &mapped.anonymous
            };
            count.fetch_add(1, Relaxed);
            space.lock.assert_unchanged(sched);
            space.lock.unlock_after_fault(sched, mapping);
            return;
        }
        on.work(costs::FAULT + work);
        if kind != Fault::File {
            on.sched.memory.take_page(&on);
        }
        let is_table_full = {
            let _table = self.table_lock(&on).lock(&on);
            on.work(costs::SET_PTE);
            // A copy on write is a new page. The page that it replaces stays with the other process.
            let (count, other) = match kind {
                Fault::Anonymous | Fault::CopyOnWrite => (&space.mapped.anonymous, &space.mapped.file),
                Fault::File => (&space.mapped.file, &space.mapped.anonymous),
            };
            (count.fetch_add(1, Relaxed) + 1 + other.load(Relaxed)).is_multiple_of(costs::PTES_PER_TABLE)
        };
        if is_table_full {
            space.mapped.tables.fetch_add(1, Relaxed);
            on.sched.memory.take_page(&on);
        }
        if kind != Fault::File {
            on.sched.memory.lru_add(&on);
        }
        space.lock.assert_unchanged(sched);
        space.lock.unlock_after_fault(sched, mapping);
    }

    /// Maps `count` anonymous pages of the caller's task at once, as exec does for arguments and stack.
    pub(crate) fn map_pages(&self, sched: &Scheduler<M>, count: u32) {
        for _ in 0..count {
            self.fault(sched, Fault::Anonymous);
        }
    }

    /// Copies the caller's page tables to the new task `child` (`dup_mmap`). Anonymous pages are shared until written.
    pub(crate) fn copy_space(&self, sched: &Scheduler<M>, child: TaskId, vmas: u32) {
        let parent = sched.on_cpu().space();
        let source = self.get(parent);
        source.lock.begin_change(sched);
        let on = sched.on_cpu();
        if !sched.measured.is_on() {
            on.work(costs::FORK_PER_VMA * u64::from(vmas));
        }
        on.sched.memory.slab(&on, vmas);
        let anonymous = source.mapped.anonymous.load(Relaxed);
        for batch in batches(anonymous, costs::PTES_PER_TABLE) {
            on.sched.memory.take_page(&on);
            source.table.hold(&on, costs::COPY_PTE * u64::from(batch));
        }
        let copy = &self.get(child).mapped;
        copy.anonymous.store(0, Relaxed);
        copy.file.store(0, Relaxed);
        copy.tables.store(anonymous.div_ceil(costs::PTES_PER_TABLE), Relaxed);
        // The parent's pages are read-only now.
        sched.flush_space(parent);
        source.lock.end_change();
        source.lock.semaphore.write_unlock(&on);
    }

    /// Maps anonymous memory of the caller's task.
    pub(crate) fn map(&self, sched: &Scheduler<M>, count: u32) {
        let space = self.get(sched.on_cpu().space());
        space.lock.begin_change(sched);
        let on = sched.on_cpu();
        if !on.measured(Step::MAP, |_| None) {
            on.work(costs::MAP_ANONYMOUS);
        }
        sched.memory.slab(&on, 1);
        self.get(on.current()).mapped_pages.set(count);
        space.lock.end_change();
        space.lock.semaphore.write_unlock(&on);
    }

    /// Unmaps `count` anonymous pages of the caller's task (munmap, brk), and waits until no TLB holds them.
    pub(crate) fn unmap(&self, sched: &Scheduler<M>, count: u32) {
        let owner = sched.on_cpu().space();
        let space = self.get(owner);
        space.lock.begin_change(sched);
        let on = sched.on_cpu();
        let table = self.table_lock(&on);
        let pick = |class| (class == LockClass::PageTable).then_some(table);
        if !on.measured(Step::DETACH, pick) {
            on.work(costs::UNMAP_ANONYMOUS);
        }
        sched.memory.slab(&on, 1);
        space.lock.end_change();
        let is_downgraded = space.lock.downgrade_to_free(&on);
        // The rows are those of a mapping of one page, whose page they free, too.
        let first = on.measured(Step::UNMAP, pick);
        self.give_back(sched, owner, count, u32::from(first));
        let on = sched.on_cpu();
        self.get(on.current()).mapped_pages.set(0);
        if is_downgraded {
            space.lock.semaphore.read_unlock(&on);
        } else {
            space.lock.semaphore.write_unlock(&on);
        }
    }

    /// Frees `count` anonymous pages of the caller's task, and waits until no TLB holds them. The mapping stays.
    pub(crate) fn discard(&self, sched: &Scheduler<M>, count: u32) {
        let owner = sched.on_cpu().space();
        let space = self.get(owner);
        space.lock.semaphore.read(sched);
        sched.on_cpu().work(costs::MADVISE);
        self.give_back(sched, owner, count, 0);
        space.lock.semaphore.read_unlock(&sched.on_cpu());
    }

    /// Frees `count` pages, of which the locks of the first `done` are taken already.
    fn give_back(&self, sched: &Scheduler<M>, owner: TaskId, count: u32, done: u32) {
        let anonymous = &self.get(owner).mapped.anonymous;
        let count = count.min(anonymous.load(Relaxed));
        let rest = count.saturating_sub(done);
        self.zap(sched, rest);
        sched.flush_space(owner);
        self.free(sched, rest);
        let left = anonymous.fetch_sub(count, Relaxed) - count;
        sched.memory.forget(&sched.on_cpu(), owner, count, left);
    }

    /// Tears the address space of `owner` down (`exit_mmap`). The caller's task is its last user.
    pub(crate) fn release_space(&self, sched: &Scheduler<M>, owner: TaskId) {
        let space = self.get(owner);
        let mapped = &space.mapped;
        let anonymous = mapped.anonymous.swap(0, Relaxed);
        space.threads.store(0, Relaxed);
        self.zap(sched, anonymous + mapped.file.swap(0, Relaxed));
        sched.flush_space(owner);
        self.free(sched, anonymous);
        sched.memory.forget(&sched.on_cpu(), owner, anonymous, 0);
        sched.memory.give_pages(&sched.on_cpu(), mapped.tables.swap(0, Relaxed));
    }

    /// Takes `count` entries out of the page tables where the caller's task touches memory.
    fn zap(&self, sched: &Scheduler<M>, count: u32) {
        for batch in batches(count, costs::ZAP_BATCH) {
            let on = sched.on_cpu();
            self.table_lock(&on).hold(&on, costs::ZAP_PTE * u64::from(batch));
            cond_resched(sched);
        }
    }

    fn free(&self, sched: &Scheduler<M>, count: u32) {
        for batch in batches(count, costs::LRU_BATCH) {
            sched.memory.release_batch(&sched.on_cpu(), batch);
            cond_resched(sched);
        }
    }
}
