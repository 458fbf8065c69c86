//! Address spaces: page tables, faults, fork's copy, teardown, and who must be told when a translation goes.

use alloc::boxed::Box;
use holdfast_locks::Word;

use super::tlb::flush_space;
use crate::class::{Event, LockClass};
use crate::costs;
use crate::fs::{self, FileId};
use crate::kernel::{Kernel, OnCpu};
use crate::local::Local32;
use crate::machine::Machine;
use crate::process::Executable;
use crate::sched::cond_resched;
use crate::sync::{SpinLock, WordOf};
use crate::task::TaskId;

/// An address space. Each task's slot has one; threads and vfork children use another task's.
pub(crate) struct AddressSpace<M: Machine> {
    /// `mm->page_table_lock`.
    tables: SpinLock<Tables, M>,
    /// CPUs whose TLB may hold its translations, 32 a word (`mm_cpumask`).
    pub(super) cpus: Box<[WordOf<M>]>,
    /// The executed file, the first library and how many: what is mapped of files. The owner's alone.
    files: [Local32; 3],
}

/// Mappings per executable or library: text, read-only data, data, bss.
const SEGMENTS: u32 = 4;
const NO_FILE: u32 = u32::MAX;

/// What is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tables {
    anonymous: u32,
    file: u32,
    /// Page-table pages.
    tables: u32,
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
            tables: SpinLock::new(LockClass::PageTable, Tables::default()),
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

/// Handles one page fault of the caller's task.
pub(crate) fn fault<M: Machine>(on: &OnCpu<'_, M>, kind: Fault) {
    on.local.count(Event::PageFaults);
    let memory = &on.kernel.memory;
    let work = match kind {
        Fault::Anonymous => costs::CLEAR_PAGE,
        Fault::CopyOnWrite => costs::COPY_PAGE,
        Fault::File => 0,
    };
    on.work(costs::FAULT + work);
    if kind != Fault::File {
        memory.take_page(on);
    }
    let mut tables = space_of(on.kernel, current_space(on)).tables.lock(on);
    match kind {
        // The copy is a new page; what it replaces stays with the other side.
        Fault::Anonymous | Fault::CopyOnWrite => tables.anonymous += 1,
        Fault::File => tables.file += 1,
    }
    let is_table_full = (tables.anonymous + tables.file).is_multiple_of(costs::PTES_PER_TABLE);
    tables.tables += u32::from(is_table_full);
    on.work(costs::SET_PTE);
    drop(tables);
    if is_table_full {
        memory.take_page(on);
    }
    if kind != Fault::File {
        memory.lru_add(on);
    }
}

/// Maps `count` anonymous pages of the caller's task at once, as exec does for arguments and stack.
pub(crate) fn map_pages<M: Machine>(on: &OnCpu<'_, M>, count: u32) {
    for _ in 0..count {
        fault(on, Fault::Anonymous);
    }
}

/// Copies the caller's page tables to the new task `child` (`dup_mmap`): anonymous pages are shared until written.
pub(crate) fn copy_space<M: Machine>(kernel: &Kernel<M>, child: TaskId, vmas: u32) {
    let on = kernel.on_cpu();
    let parent = current_space(&on);
    let mut copied = 0;
    on.work(costs::FORK_PER_VMA * u64::from(vmas));
    kernel.memory.slab(&on, vmas);
    let source = { *space_of(kernel, parent).tables.lock(&on) };
    while copied < source.anonymous {
        let batch = (source.anonymous - copied).min(costs::PTES_PER_TABLE);
        kernel.memory.take_page(&on);
        let _tables = space_of(kernel, parent).tables.lock(&on);
        on.work(costs::COPY_PTE * u64::from(batch));
        copied += batch;
    }
    {
        let mut tables = space_of(kernel, child).tables.lock(&on);
        *tables = Tables {
            anonymous: 0,
            file: 0,
            tables: source.anonymous.div_ceil(costs::PTES_PER_TABLE),
        };
    }
    // The parent's pages are read-only now.
    flush_space(&on, parent);
    for (to, from) in space_of(kernel, child)
        .files
        .iter()
        .zip(&space_of(kernel, parent).files)
    {
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

/// Unmaps `count` anonymous pages of the caller's task (munmap, brk) and waits until no TLB holds them.
pub(crate) fn unmap_pages<M: Machine>(kernel: &Kernel<M>, count: u32) {
    let on = kernel.on_cpu();
    let space = current_space(&on);
    let count = count.min(space_of(kernel, space).tables.lock(&on).anonymous);
    zap(kernel, space, count, 0);
    flush_space(&kernel.on_cpu(), space);
    free(kernel, count);
    let on = kernel.on_cpu();
    space_of(kernel, space).tables.lock(&on).anonymous -= count;
}

/// Tears the address space of `owner` down (`exit_mmap`); the caller's task is its last user.
pub(crate) fn release_space<M: Machine>(kernel: &Kernel<M>, owner: TaskId) {
    let on = kernel.on_cpu();
    let Tables {
        anonymous,
        file,
        tables,
    } = *space_of(kernel, owner).tables.lock(&on);
    zap(kernel, owner, anonymous, file);
    flush_space(&kernel.on_cpu(), owner);
    free(kernel, anonymous);
    let on = kernel.on_cpu();
    kernel.memory.give_pages(&on, tables);
    *space_of(kernel, owner).tables.lock(&on) = Tables::default();
}

fn zap<M: Machine>(kernel: &Kernel<M>, space: TaskId, anonymous: u32, file: u32) {
    let mut left = anonymous + file;
    while left > 0 {
        let batch = left.min(costs::ZAP_BATCH);
        let on = kernel.on_cpu();
        {
            let _tables = space_of(kernel, space).tables.lock(&on);
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
