//! The page allocator with its per-CPU lists, the LRU lists with their per-CPU batches, and slabs.

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::Interrupts;

use crate::class::LockClass;
use crate::costs;
use crate::cpu::ThisCpu;
use crate::ids::{CpuTable, TaskId};
use crate::lines;
use crate::local::Local32;
use crate::machine::{Cpu, Machine, TakenPage};
use crate::sync::SpinLock;

/// The free pages of the nodes and of the CPUs. A page goes back to the node of the CPU that frees it, where nearly all
/// freed pages came from. No node runs out.
pub(crate) struct Memory<M: Machine> {
    nodes: Box<[Node<M>]>,
    /// Locks of the page tables in the area of mappings. Each table has its own lock in Linux. Here, tables that are 64
    /// tables (128 MiB) apart share one.
    tables: Box<[SpinLock<(), M>]>,
    cpus: CpuTable<PageLists>,
    used: Used,
    /// Whether a measured kernel's rows have the locks of single pages and objects.
    is_measured: bool,
}

/// Anonymous pages in use. Freed pages are used again first, so only a new peak touches a page for the first time.
struct Used {
    now: AtomicU32,
    peak: AtomicU32,
}

const TABLE_LOCKS: u32 = 64;
/// How long the zone's lock is held for a batch of pages, nanoseconds.
const BATCH_HELD: u64 = costs::ZONE_PER_PAGE * costs::PAGE_BATCH as u64;

/// One zone of one node.
struct Node<M: Machine> {
    /// Linux's `zone->lock`.
    zone: SpinLock<(), M>,
    /// Linux's `zone->lru_lock`.
    lru: SpinLock<(), M>,
    /// One slab cache's node represents the few that matter (files, dentries, VMAs, socket buffers).
    slab: SpinLock<(), M>,
}

/// A CPU's own lists.
struct PageLists {
    free: Local32,
    /// Pages on their way to the LRU lists (`lru_add_pvecs`).
    lru_added: Local32,
    /// Objects in this CPU's slab.
    objects: Local32,
}

/// The sizes of the batches in which `count` pages are worked on, of at most `size` each.
pub(crate) fn batches(count: u32, size: u32) -> impl Iterator<Item = u32> {
    let firsts = (0..count).step_by(size as usize);
    firsts.map(move |first| size.min(count - first))
}

impl<M: Machine> Memory<M> {
    pub(crate) fn new(nodes: u32, cpus: u32, is_measured: bool, is_fresh: bool) -> Self {
        let node = |_| Node {
            zone: SpinLock::new(LockClass::Zone, ()),
            lru: SpinLock::new(LockClass::Lru, ()),
            slab: SpinLock::new(LockClass::Slab, ()),
        };
        Memory {
            is_measured,
            used: Used {
                now: AtomicU32::new(0),
                peak: AtomicU32::new(if is_fresh { 0 } else { u32::MAX }),
            },
            nodes: (0..nodes).map(node).collect(),
            tables: (0..TABLE_LOCKS)
                .map(|_| SpinLock::new(LockClass::PageTable, ()))
                .collect(),
            cpus: CpuTable::new(cpus, |_| PageLists {
                free: Local32::new(0),
                lru_added: Local32::new(0),
                objects: Local32::new(0),
            }),
        }
    }

    /// The lock of page table `number` in the area of mappings.
    pub(crate) fn table_lock(&self, number: u32) -> &SpinLock<(), M> {
        &self.tables[(number % TABLE_LOCKS) as usize]
    }

    /// The node of the caller's CPU.
    fn node(&self, on: &ThisCpu<'_, M>) -> &Node<M> {
        &self.nodes[on.system.numa.nodes[on.id] as usize]
    }

    /// The caller's node's lock of `class`, if that is a lock of nodes.
    pub(crate) fn lock_of(&self, on: &ThisCpu<'_, M>, class: LockClass) -> Option<&SpinLock<(), M>> {
        let node = self.node(on);
        match class {
            LockClass::Zone => Some(&node.zone),
            LockClass::Lru => Some(&node.lru),
            LockClass::Slab => Some(&node.slab),
            _ => None,
        }
    }

    /// Writes to an anonymous page of address space `space` that was just taken, its page number `of_space`.
    pub(crate) fn touch(&self, on: &ThisCpu<'_, M>, space: TaskId, of_space: u32) {
        // ORDERING: Relaxed: counts.
        let in_use = self.used.now.fetch_add(1, Relaxed) + 1;
        on.cpu.touch_page(TakenPage {
            space: space.0,
            of_space,
            in_use,
            is_first_touch: self.used.peak.fetch_max(in_use, Relaxed) < in_use,
        });
    }

    /// Forgets `count` anonymous pages of address space `space` that are freed. It has `left`.
    pub(crate) fn forget(&self, on: &ThisCpu<'_, M>, space: TaskId, count: u32, left: u32) {
        // ORDERING: as above.
        self.used.now.fetch_sub(count, Relaxed);
        on.cpu.pages_freed(space.0, left);
    }

    /// Takes one page (`get_page_from_freelist`, order 0).
    pub(crate) fn take_page(&self, on: &ThisCpu<'_, M>) {
        if self.is_measured {
            return;
        }
        let enabled = on.cpu.irq_save();
        let free = &self.cpus[on.id].free;
        if free.get() == 0 {
            let lines = lines::ZONE_TAKEN.times(costs::PAGE_BATCH);
            self.node(on).zone.hold_lines(on, lines, BATCH_HELD);
            free.add(costs::PAGE_BATCH);
        }
        free.sub(1);
        on.work(costs::PAGE_LOCAL);
        on.cpu.irq_restore(enabled);
    }

    /// Returns `count` pages to this CPU's list, and full batches from there to the zone.
    pub(crate) fn give_pages(&self, on: &ThisCpu<'_, M>, count: u32) {
        let enabled = on.cpu.irq_save();
        let free = &self.cpus[on.id].free;
        free.add(count);
        on.work(costs::PAGE_LOCAL * u64::from(count));
        while free.get() >= costs::PAGE_HIGH {
            let lines = lines::ZONE_GIVEN.times(costs::PAGE_BATCH);
            self.node(on).zone.hold_lines(on, lines, BATCH_HELD);
            free.sub(costs::PAGE_BATCH);
        }
        on.cpu.irq_restore(enabled);
    }

    /// Puts a fresh page on the LRU lists, where it goes together with its batch (`lru_cache_add`).
    pub(crate) fn lru_add(&self, on: &ThisCpu<'_, M>) {
        let added = &self.cpus[on.id].lru_added;
        added.add(1);
        if self.is_measured || added.get() < costs::LRU_BATCH {
            return;
        }
        added.set(0);
        self.lru_change(on, costs::LRU_BATCH);
    }

    /// Adds `count` pages to the LRU lists, or takes them off.
    fn lru_change(&self, on: &ThisCpu<'_, M>, count: u32) {
        let held = costs::LRU_PER_PAGE * u64::from(count);
        self.node(on).lru.hold_lines(on, lines::LRU, held);
    }

    /// Takes up to a batch of pages off the LRU lists and frees them (`release_pages`).
    pub(crate) fn release_batch(&self, on: &ThisCpu<'_, M>, count: u32) {
        debug_assert!(count <= costs::LRU_BATCH);
        self.lru_change(on, count);
        self.give_pages(on, count);
    }

    /// Allocates or frees `count` slab objects.
    pub(crate) fn slab(&self, on: &ThisCpu<'_, M>, count: u32) {
        if !self.is_measured {
            on.work(costs::SLAB_LOCAL * u64::from(count));
        }
        self.slab_refill(on, count);
    }

    /// The share of `count` slab objects in the refills of this CPU's slabs. The caller has charged the rest.
    pub(crate) fn slab_refill(&self, on: &ThisCpu<'_, M>, count: u32) {
        if self.is_measured {
            return;
        }
        let objects = &self.cpus[on.id].objects;
        objects.add(count);
        if objects.get() >= costs::SLAB_BATCH {
            objects.set(0);
            self.node(on).slab.hold_irq(on, costs::SLAB_REFILL);
        }
    }
}
