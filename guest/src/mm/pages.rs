//! The page allocator with its per-CPU lists, the LRU lists with their per-CPU batches, and slabs.

use alloc::boxed::Box;

use holdfast_locks::Interrupts;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::OnCpu;
use crate::local::Local32;
use crate::machine::Machine;
use crate::sync::SpinLock;

/// What the CPUs share, node by node. A page goes back to the node of the CPU that frees it, which is where nearly all
/// came from; no node runs out.
pub(crate) struct Memory<M: Machine> {
    nodes: Box<[Node<M>]>,
    /// Locks of the page tables in the area of mappings: each has its own in Linux, 64 tables (128 MiB) apart share one here.
    tables: Box<[SpinLock<(), M>]>,
}

const TABLE_LOCKS: u32 = 64;

/// One zone of one node.
struct Node<M: Machine> {
    /// `zone->lock`; the value counts the pages that CPUs have taken.
    zone: SpinLock<i64, M>,
    /// `zone->lru_lock`; the value counts the pages on the lists.
    lru: SpinLock<i64, M>,
    /// One slab cache's node stands for the few that matter (files, dentries, VMAs, socket buffers).
    slab: SpinLock<(), M>,
}

/// A CPU's own lists.
pub(crate) struct PageLists {
    free: Local32,
    /// Pages on their way to the LRU lists (`lru_add_pvecs`).
    lru_added: Local32,
    /// Objects in this CPU's slab.
    objects: Local32,
}

impl PageLists {
    pub(crate) const fn new() -> Self {
        PageLists {
            free: Local32::new(0),
            lru_added: Local32::new(0),
            objects: Local32::new(0),
        }
    }
}

impl<M: Machine> Memory<M> {
    pub(crate) fn new(nodes: u32) -> Self {
        let node = |_| Node {
            zone: SpinLock::new(LockClass::Zone, 0),
            lru: SpinLock::new(LockClass::Lru, 0),
            slab: SpinLock::new(LockClass::Slab, ()),
        };
        Memory {
            nodes: (0..nodes).map(node).collect(),
            tables: (0..TABLE_LOCKS)
                .map(|_| SpinLock::new(LockClass::PageTable, ()))
                .collect(),
        }
    }

    /// The lock of page table `number` in the area of mappings.
    pub(super) fn table_lock(&self, number: u32) -> &SpinLock<(), M> {
        &self.tables[(number % TABLE_LOCKS) as usize]
    }

    /// The node of the caller's CPU.
    fn node(&self, on: &OnCpu<'_, M>) -> &Node<M> {
        &self.nodes[on.kernel.numa.node_of(on.index) as usize]
    }

    /// Takes one page (`get_page_from_freelist`, order 0).
    pub(crate) fn take_page(&self, on: &OnCpu<'_, M>) {
        let masked = on.cpu.irq_save();
        let free = &on.local.pages.free;
        if free.get() == 0 {
            let mut zone = self.node(on).zone.lock(on);
            *zone += i64::from(costs::PAGE_BATCH);
            on.work(costs::ZONE_PER_PAGE * u64::from(costs::PAGE_BATCH));
            drop(zone);
            free.add(costs::PAGE_BATCH);
        }
        free.sub(1);
        on.work(costs::PAGE_LOCAL);
        on.cpu.irq_restore(masked);
    }

    /// Gives `count` pages back to this CPU's list, and full batches from there to the zone.
    pub(crate) fn give_pages(&self, on: &OnCpu<'_, M>, count: u32) {
        let masked = on.cpu.irq_save();
        let free = &on.local.pages.free;
        free.add(count);
        on.work(costs::PAGE_LOCAL * u64::from(count));
        while free.get() >= costs::PAGE_HIGH {
            let mut zone = self.node(on).zone.lock(on);
            *zone -= i64::from(costs::PAGE_BATCH);
            on.work(costs::ZONE_PER_PAGE * u64::from(costs::PAGE_BATCH));
            drop(zone);
            free.sub(costs::PAGE_BATCH);
        }
        on.cpu.irq_restore(masked);
    }

    /// Puts a fresh page on the LRU lists, with its batch (`lru_cache_add`).
    pub(crate) fn lru_add(&self, on: &OnCpu<'_, M>) {
        let added = &on.local.pages.lru_added;
        added.add(1);
        if added.get() < costs::LRU_BATCH {
            return;
        }
        added.set(0);
        let mut lru = self.node(on).lru.lock_irq(on);
        *lru += i64::from(costs::LRU_BATCH);
        on.work(costs::LRU_PER_PAGE * u64::from(costs::LRU_BATCH));
    }

    /// Takes up to a batch of pages off the LRU lists and frees them (`release_pages`).
    pub(crate) fn release_batch(&self, on: &OnCpu<'_, M>, count: u32) {
        debug_assert!(count <= costs::LRU_BATCH);
        {
            let mut lru = self.node(on).lru.lock_irq(on);
            *lru -= i64::from(count);
            on.work(costs::LRU_PER_PAGE * u64::from(count));
        }
        self.give_pages(on, count);
    }

    /// Allocates or frees `count` slab objects.
    pub(crate) fn slab(&self, on: &OnCpu<'_, M>, count: u32) {
        on.work(costs::SLAB_LOCAL * u64::from(count));
        let objects = &on.local.pages.objects;
        objects.add(count);
        if objects.get() >= costs::SLAB_BATCH {
            objects.set(0);
            let _node = self.node(on).slab.lock_irq(on);
            on.work(costs::SLAB_REFILL);
        }
    }
}
