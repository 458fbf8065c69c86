//! Address spaces: page tables, faults, fork's copy, teardown, and who must be told when a translation goes.

use core::sync::atomic::Ordering::SeqCst;

use alloc::boxed::Box;
use holdfast_locks::{Platform, Word};

use crate::class::{Event, LockClass};
use crate::costs;
use crate::fs::{self, FileId};
use crate::kernel::{CpuIndex, Kernel, OnCpu};
use crate::local::Local32;
use crate::machine::Machine;
use crate::process::Executable;
use crate::sched::cond_resched;
use crate::smp::{self, Call};
use crate::sync::{SpinLock, WordOf};
use crate::task::TaskId;

/// An address space. Each task's slot has one; threads and vfork children use another task's.
pub(crate) struct AddressSpace<M: Machine> {
    /// `mm->page_table_lock`.
    tables: SpinLock<Tables, M>,
    /// CPUs whose TLB may hold its translations, 32 a word (`mm_cpumask`).
    cpus: Box<[WordOf<M>]>,
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

    fn mark(&self, on: &OnCpu<'_, M>) {
        // ORDERING: SeqCst, here and below: either the flusher sees the mark, or this CPU loads the tables after the
        // flusher changed them.
        on.cpu
            .fetch_or(&self.cpus[on.index as usize / 32], 1 << (on.index % 32), SeqCst);
    }

    fn unmark(&self, on: &OnCpu<'_, M>) {
        on.cpu
            .fetch_and(&self.cpus[on.index as usize / 32], !(1 << (on.index % 32)), SeqCst);
    }
}

fn space_of<M: Machine>(kernel: &Kernel<M>, owner: TaskId) -> &AddressSpace<M> {
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

/// Makes every CPU forget what its TLB holds of `space` (`flush_tlb_mm`).
fn flush_space<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    let words = &space_of(on.kernel, space).cpus;
    if TaskId(on.local.active_space.get()) == space {
        on.work(costs::TLB_FLUSH);
    }
    for (index, word) in words.iter().enumerate() {
        let base = index as u32 * 32;
        let mut marked = on.cpu.load(word, SeqCst);
        if on.index / 32 == index as u32 {
            marked &= !(1 << (on.index % 32));
        }
        if marked != 0 {
            on.local.count(Event::Shootdowns);
            let targets = (0..32)
                .filter(move |bit| marked & (1 << bit) != 0)
                .map(move |bit| base + bit);
            smp::call_many(on, targets, Call::FlushSpace(space));
        }
    }
}

/// A CPU's part of a shootdown. One that only kept the tables because nobody needed others drops them (`leave_mm`).
pub(crate) fn flush_here<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    if TaskId(on.local.active_space.get()) != space {
        return;
    }
    if on.local.lazy_space.is_set() {
        space_of(on.kernel, space).unmark(on);
        on.local.active_space.set(kernel_space(on.index).0);
    } else {
        on.work(costs::TLB_FLUSH);
    }
}

/// The idle task's, which maps nothing.
fn kernel_space(cpu: CpuIndex) -> TaskId {
    TaskId(cpu)
}

/// Loads the tables of `next`'s address space (`switch_mm`). An idle task borrows what is loaded.
pub(crate) fn switch_space<M: Machine>(on: &OnCpu<'_, M>, next: TaskId) {
    let (kernel, local) = (on.kernel, on.local);
    if kernel.tasks.is_idle(next) {
        local.lazy_space.set(1);
        return;
    }
    let space = TaskId(kernel.tasks.get(next).space.get());
    load_space(on, space);
}

/// Loads the tables of `space` on this CPU.
pub(crate) fn load_space<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    let local = on.local;
    let active = TaskId(local.active_space.get());
    local.lazy_space.set(0);
    if active == space {
        return;
    }
    if !on.kernel.tasks.is_idle(active) {
        space_of(on.kernel, active).unmark(on);
    }
    local.active_space.set(space.0);
    space_of(on.kernel, space).mark(on);
}
