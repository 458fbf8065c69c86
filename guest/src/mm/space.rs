//! Address spaces: page tables, faults, fork's copy, teardown, and who must be told when a translation goes.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use holdfast_locks::Word;

use super::lock::MmapLock;
use super::tlb::flush_space;
use crate::class::{Event, LockClass};
use crate::costs;
use crate::fs::{self, FileId};
use crate::kernel::{Kernel, OnCpu};
use crate::local::Local32;
use crate::machine::Machine;
use crate::process::Executable;
use crate::rwsem::RwSemaphore;
use crate::sched::cond_resched;
use crate::sync::{SpinLock, WordOf};
use crate::task::TaskId;

/// An address space. Each task's slot has one; threads and vfork children use another task's, and of their own only what
/// is each thread's: its page table and its mapping.
pub(crate) struct AddressSpace<M: Machine> {
    /// `mmap_sem`.
    pub(super) semaphore: RwSemaphore<M>,
    /// The lock of the page table where this slot's task allocates: the heap of a process, or a thread's arena, for each of
    /// which the C library takes 64 MiB of addresses.
    table: SpinLock<(), M>,
    /// The word of this slot's mapping that page faults lock instead of the address space.
    pub(super) mapping: WordOf<M>,
    mapped: Mapped,
    /// Whether somebody changes the mappings at this moment: nobody else may use them then.
    changing: AtomicBool,
    /// Threads that it has had besides the first.
    threads: AtomicU32,
    /// CPUs whose TLB may hold its translations, 32 a word (`mm_cpumask`).
    pub(super) cpus: Box<[WordOf<M>]>,
    /// The executed file, the first library and how many: what is mapped of files. The owner's alone.
    files: [Local32; 3],
}

/// Mappings per executable or library: text, read-only data, data, bss.
const SEGMENTS: u32 = 4;
const NO_FILE: u32 = u32::MAX;
/// Entries of a page table.
const PAGES_OF_TABLE: u64 = 512;

/// What is mapped, in pages. Linux counts in each task and adds that up every 64 pages (`SPLIT_RSS_COUNTING`), so that nobody
/// waits for it.
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

impl<M: Machine> AddressSpace<M> {
    pub(crate) fn new(cpus: u32) -> Self {
        AddressSpace {
            semaphore: RwSemaphore::new(),
            table: SpinLock::new(LockClass::PageTable, ()),
            mapping: WordOf::<M>::new(0),
            mapped: Mapped::default(),
            changing: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            cpus: (0..cpus.div_ceil(32)).map(|_| WordOf::<M>::new(0)).collect(),
            files: [NO_FILE, 0, 0].map(Local32::new),
        }
    }

    /// Notes what [`map_files`] is to map.
    pub(crate) fn set_files(&self, executable: &Executable) {
        let Executable {
            file,
            library_first,
            libraries,
            ..
        } = *executable;
        self.files[0].set(file.0);
        self.files[1].set(library_first.0);
        self.files[2].set(libraries);
    }

    /// Waits until the caller alone may change the mappings. The caller may be on another CPU afterwards.
    fn begin_change(&self, kernel: &Kernel<M>) {
        self.lock_to_change(kernel);
        assert!(!self.changing.swap(true, Relaxed), "two tasks change one address space");
    }

    /// For a page fault that keeps others from changing the mappings, when it begins and when it ends.
    fn assert_unchanged(&self, kernel: &Kernel<M>) {
        assert!(
            kernel.config.mmap_lock == MmapLock::PerVma || !self.changing.load(Relaxed),
            "an address space is changed during a page fault"
        );
    }

    /// The mappings are as they shall be: others may use them, and those that were changed are the caller's still to empty.
    fn end_change(&self) {
        self.changing.store(false, Relaxed);
    }

    fn mapped_files(&self) -> impl Iterator<Item = FileId> + use<M> {
        let [file, first, count] = [0, 1, 2].map(|index| self.files[index].get());
        let executable = (file != NO_FILE).then_some(file);
        executable.into_iter().chain(first..first + count).map(FileId)
    }
}

pub(super) fn space_of<M: Machine>(kernel: &Kernel<M>, owner: TaskId) -> &AddressSpace<M> {
    &kernel.tasks.get(owner).own_space
}

fn current_space<M: Machine>(on: &OnCpu<'_, M>) -> TaskId {
    TaskId(on.kernel.tasks.get(on.current()).space.get())
}

/// What of an address space is the caller's task's own.
pub(super) fn own_space<'k, M: Machine>(on: &OnCpu<'k, M>) -> &'k AddressSpace<M> {
    space_of(on.kernel, on.current())
}

/// The task `id` becomes a thread of the address space that it uses; which one, the first being its main thread, 0.
pub(crate) fn add_thread<M: Machine>(kernel: &Kernel<M>, id: TaskId) -> u32 {
    let space = TaskId(kernel.tasks.get(id).space.get());
    space_of(kernel, space).threads.fetch_add(1, Relaxed) + 1
}

/// The lock of the page table where the caller's task touches memory: that of its heap, or of the area of mappings, where
/// equal mappings of threads lie one beside the other, several in a table.
fn table_lock<'k, M: Machine>(on: &OnCpu<'k, M>) -> &'k SpinLock<(), M> {
    let task = on.kernel.tasks.get(on.current());
    match task.mapped_pages.get() {
        0 => &task.own_space.table,
        pages => {
            let first = u64::from(task.thread.get()) * u64::from(pages);
            on.kernel.memory.table_lock((first / PAGES_OF_TABLE) as u32)
        }
    }
}

/// Handles one page fault of the caller's task.
pub(crate) fn fault<M: Machine>(kernel: &Kernel<M>, kind: Fault) {
    let on = kernel.on_cpu();
    on.local.count(Event::PageFaults);
    let space = space_of(kernel, current_space(&on));
    space.lock_for_fault(kernel);
    let on = kernel.on_cpu();
    space.assert_unchanged(kernel);
    let memory = &kernel.memory;
    let work = match kind {
        Fault::Anonymous => costs::CLEAR_PAGE,
        Fault::CopyOnWrite => costs::COPY_PAGE,
        Fault::File => 0,
    };
    on.work(costs::FAULT + work);
    if kind != Fault::File {
        memory.take_page(&on);
    }
    let is_table_full = {
        let _table = table_lock(&on).lock(&on);
        on.work(costs::SET_PTE);
        // A copy on write is a new page; what it replaces stays with the other side.
        let (count, other) = match kind {
            Fault::Anonymous | Fault::CopyOnWrite => (&space.mapped.anonymous, &space.mapped.file),
            Fault::File => (&space.mapped.file, &space.mapped.anonymous),
        };
        (count.fetch_add(1, Relaxed) + 1 + other.load(Relaxed)).is_multiple_of(costs::PTES_PER_TABLE)
    };
    if is_table_full {
        space.mapped.tables.fetch_add(1, Relaxed);
        memory.take_page(&on);
    }
    if kind != Fault::File {
        memory.lru_add(&on);
    }
    space.assert_unchanged(kernel);
    space.unlock_after_fault(kernel);
}

/// Maps `count` anonymous pages of the caller's task at once, as exec does for arguments and stack.
pub(crate) fn map_pages<M: Machine>(kernel: &Kernel<M>, count: u32) {
    for _ in 0..count {
        fault(kernel, Fault::Anonymous);
    }
}

/// Copies the caller's page tables to the new task `child` (`dup_mmap`): anonymous pages are shared until written.
pub(crate) fn copy_space<M: Machine>(kernel: &Kernel<M>, child: TaskId, vmas: u32) {
    let parent = current_space(&kernel.on_cpu());
    let source = space_of(kernel, parent);
    source.begin_change(kernel);
    let on = kernel.on_cpu();
    on.work(costs::FORK_PER_VMA * u64::from(vmas));
    kernel.memory.slab(&on, vmas);
    let anonymous = source.mapped.anonymous.load(Relaxed);
    let mut copied = 0;
    while copied < anonymous {
        let batch = (anonymous - copied).min(costs::PTES_PER_TABLE);
        kernel.memory.take_page(&on);
        let _table = source.table.lock(&on);
        on.work(costs::COPY_PTE * u64::from(batch));
        copied += batch;
    }
    let copy = space_of(kernel, child);
    copy.mapped.anonymous.store(0, Relaxed);
    copy.mapped.file.store(0, Relaxed);
    copy.mapped
        .tables
        .store(anonymous.div_ceil(costs::PTES_PER_TABLE), Relaxed);
    // The parent's pages are read-only now.
    flush_space(&on, parent);
    source.end_change();
    source.semaphore.write_unlock(&on);
    for (to, from) in copy.files.iter().zip(&source.files) {
        to.set(from.get());
    }
    map_files(kernel, child);
}

/// Links the mappings of `owner`'s files to the files.
pub(crate) fn map_files<M: Machine>(kernel: &Kernel<M>, owner: TaskId) {
    for file in space_of(kernel, owner).mapped_files() {
        kernel.on_cpu().work(costs::MAP_VMA * u64::from(SEGMENTS));
        kernel.memory.slab(&kernel.on_cpu(), SEGMENTS);
        fs::link_mappings(kernel, file, SEGMENTS);
    }
}

/// Unlinks them.
pub(crate) fn unmap_files<M: Machine>(kernel: &Kernel<M>, owner: TaskId) {
    let space = space_of(kernel, owner);
    for file in space.mapped_files() {
        kernel.memory.slab(&kernel.on_cpu(), SEGMENTS);
        fs::link_mappings(kernel, file, SEGMENTS);
    }
    space.files[0].set(NO_FILE);
    space.files[2].set(0);
}

/// Maps anonymous memory of the caller's task.
pub(crate) fn map<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let space = space_of(kernel, current_space(&kernel.on_cpu()));
    space.begin_change(kernel);
    let on = kernel.on_cpu();
    on.work(costs::MAP_ANONYMOUS);
    kernel.memory.slab(&on, 1);
    kernel.tasks.get(on.current()).mapped_pages.set(count);
    space.end_change();
    space.semaphore.write_unlock(&on);
}

/// Unmaps `count` anonymous pages of the caller's task (munmap, brk) and waits until no TLB holds them.
pub(crate) fn unmap<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let owner = current_space(&kernel.on_cpu());
    let space = space_of(kernel, owner);
    space.begin_change(kernel);
    let on = kernel.on_cpu();
    on.work(costs::UNMAP_ANONYMOUS);
    kernel.memory.slab(&on, 1);
    space.end_change();
    let downgrades = kernel.config.mmap_lock >= MmapLock::Downgrading;
    if downgrades {
        space.semaphore.downgrade(&on);
    }
    give_back(kernel, owner, count);
    let on = kernel.on_cpu();
    kernel.tasks.get(on.current()).mapped_pages.set(0);
    if downgrades {
        space.semaphore.read_unlock(&on);
    } else {
        space.semaphore.write_unlock(&on);
    }
}

/// Gives `count` anonymous pages of the caller's task back and waits until no TLB holds them; the mapping stays.
pub(crate) fn discard<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let owner = current_space(&kernel.on_cpu());
    let space = space_of(kernel, owner);
    space.semaphore.read(kernel);
    kernel.on_cpu().work(costs::MADVISE);
    give_back(kernel, owner, count);
    space.semaphore.read_unlock(&kernel.on_cpu());
}

fn give_back<M: Machine>(kernel: &Kernel<M>, owner: TaskId, count: u32) {
    let anonymous = &space_of(kernel, owner).mapped.anonymous;
    let count = count.min(anonymous.load(Relaxed));
    zap(kernel, count);
    flush_space(&kernel.on_cpu(), owner);
    free(kernel, count);
    anonymous.fetch_sub(count, Relaxed);
}

/// Tears the address space of `owner` down (`exit_mmap`); the caller's task is its last user.
pub(crate) fn release_space<M: Machine>(kernel: &Kernel<M>, owner: TaskId) {
    let mapped = &space_of(kernel, owner).mapped;
    let anonymous = mapped.anonymous.swap(0, Relaxed);
    space_of(kernel, owner).threads.store(0, Relaxed);
    zap(kernel, anonymous + mapped.file.swap(0, Relaxed));
    flush_space(&kernel.on_cpu(), owner);
    free(kernel, anonymous);
    kernel
        .memory
        .give_pages(&kernel.on_cpu(), mapped.tables.swap(0, Relaxed));
}

/// Takes `count` entries out of the page tables where the caller's task touches memory.
fn zap<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let mut left = count;
    while left > 0 {
        let batch = left.min(costs::ZAP_BATCH);
        let on = kernel.on_cpu();
        {
            let _table = table_lock(&on).lock(&on);
            on.work(costs::ZAP_PTE * u64::from(batch));
        }
        left -= batch;
        cond_resched(kernel);
    }
}

fn free<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let mut left = count;
    while left > 0 {
        let batch = left.min(costs::LRU_BATCH);
        kernel.memory.release_batch(&kernel.on_cpu(), batch);
        left -= batch;
        cond_resched(kernel);
    }
}
