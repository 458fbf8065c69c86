//! The table from a lock to the waiter that its unlocker must kick (Linux: `pv_lock_hash` in
//! `kernel/locking/qspinlock_paravirt.h`).
//!
//! A table of fixed size with open addressing and linear probing, in units of cache lines.
//!
//! - **Both succeed**: insertion always finds room, and lookup finds what was inserted. There is an entry for each
//!   level of nesting of each CPU. A CPU heads at most one queue at each of its levels. A lock has at most one entry,
//!   because the unlocker removes it before it releases the lock.
//! - Removal leaves holes, so a lookup does not stop at an empty entry but only at the end of the table.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::{Platform, Word};
use crate::cpu::slots::Slots;

/// The number of entries on a cache line of 64 bytes, with 64-bit addresses.
const PER_LINE: usize = 4;
/// The smallest number of entries: a page of 4 KiB.
const ENTRIES_MIN: usize = 256;

/// An entry of the table of queue heads that halt.
#[derive(Debug)]
#[repr(C)]
pub struct QueueHead<W, A> {
    /// The key of the lock, or 0 if the entry is empty.
    lock: A,
    /// The code of the waiter's node. Valid once the locked byte says that the waiter is listed.
    node: W,
}

impl<W, A> QueueHead<W, A> {
    /// Makes an empty entry; both words must be zero. Usable in a `static`.
    pub const fn from_words(lock: A, node: W) -> Self {
        QueueHead { lock, node }
    }
}

/// The listed waiters: for each lock whose head of the queue halts, the node of that head.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LockTable<W: 'static, A: 'static> {
    entries: Slots<QueueHead<W, A>>,
}

impl<W, A> LockTable<W, A> {
    /// Makes a table of empty entries.
    pub const fn from_static(entries: &'static [QueueHead<W, A>]) -> Self {
        assert!(entries.len() >= ENTRIES_MIN && entries.len().is_power_of_two());
        LockTable {
            entries: Slots::Static(entries),
        }
    }
}

impl<W: Word<u32>, A: Word<usize>> LockTable<W, A> {
    /// Makes an empty table with room for `heads` waiters that head a queue at the same time.
    pub fn new(heads: usize) -> Self {
        let entries = heads.max(ENTRIES_MIN).next_power_of_two();
        let entry = |_| QueueHead {
            lock: A::new(0),
            node: W::new(0),
        };
        let entries: Slots<QueueHead<W, A>> = (0..entries).map(entry).collect();
        for entries in entries.chunks(PER_LINE) {
            let line = entries[0].lock.line();
            for entry in entries {
                entry.lock.place(line);
                entry.node.place(line);
            }
        }
        LockTable { entries }
    }

    /// Removes all entries.
    pub fn clear<P>(&self, cpu: &P)
    where
        P: Platform<Word = W, Address = A>,
    {
        for entry in self.entries.iter() {
            // A write to an untouched page would copy it. ORDERING: Relaxed, both; see `WaitTable::abandon`.
            if cpu.load_address(&entry.lock, Relaxed) != 0 {
                cpu.store_address(&entry.lock, 0, Relaxed);
            }
        }
    }

    /// Returns whether the table has no entry.
    pub fn is_empty<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W, Address = A>,
    {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        self.entries
            .iter()
            .all(|entry| cpu.load_address(&entry.lock, Relaxed) == 0)
    }

    /// Returns the entries in the order in which `key` is looked up.
    fn probe(&self, key: usize) -> impl Iterator<Item = &QueueHead<W, A>> {
        let bits = self.entries.len().ilog2();
        // Multiplicative (Fibonacci) hashing, whose upper bits are the well-mixed ones.
        let hash = ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize;
        let first = hash & !(PER_LINE - 1);
        let (wrapped, start) = self.entries.split_at(first);
        start.iter().chain(wrapped)
    }

    /// Lists the waiter `node` for the lock `key`. Returns how many entries it visited.
    pub fn insert<P>(&self, cpu: &P, key: usize, node: u32) -> u64
    where
        P: Platform<Word = W, Address = A>,
    {
        for (hops, entry) in (1..).zip(self.probe(key)) {
            // ORDERING: Acquire; pairs with the Release in `remove`: the CPU that emptied the entry has read its node
            // before this CPU overwrites it. The caller publishes the entry by a release on the lock.
            if cpu
                .compare_exchange_address(&entry.lock, 0, key, Acquire, Relaxed)
                .is_ok()
            {
                // ORDERING: Relaxed; published with the key.
                cpu.store(&entry.node, node, Relaxed);
                return hops;
            }
        }
        panic!(
            "cannot list a queue head that halts for lock {key:#x}: no entry left among {}",
            self.entries.len()
        );
    }

    /// Removes the entry of the lock `key` and returns the code of its waiter. The caller must have acquired the
    /// insertion.
    pub fn remove<P>(&self, cpu: &P, key: usize) -> u32
    where
        P: Platform<Word = W, Address = A>,
    {
        for entry in self.probe(key) {
            // ORDERING: Relaxed, both; the caller has acquired the insertion.
            if cpu.load_address(&entry.lock, Relaxed) == key {
                let node = cpu.load(&entry.node, Relaxed);
                // ORDERING: Release; pairs with the Acquire in `insert`: the node has been read.
                cpu.store_address(&entry.lock, 0, Release);
                return node;
            }
        }
        panic!("cannot kick the waiter of lock {key:#x}: the locked byte says that it is listed, but it has no entry");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::cpu::solo::{Solo, SoloWord};

    type Table = LockTable<SoloWord<u32>, SoloWord<usize>>;

    /// Returns a key like those of real locks: addresses that are a few bytes to many pages apart.
    fn key(index: usize) -> usize {
        0x7f00_0000_1000 + index * 4 + (index % 7) * 0x1_0000
    }

    #[test]
    fn four_waiters_of_each_cpu_find_room() {
        let table = Table::new(400);
        assert_eq!(table.entries.len(), 512);
        for index in 0..400 {
            table.insert(&Solo, key(index), index as u32 + 1);
        }
        // In another order: 7 and 400 have no common divisor.
        for index in (0..400).map(|index| index * 7 % 400) {
            assert_eq!(table.remove(&Solo, key(index)), index as u32 + 1);
        }
        assert!(table.is_empty(&Solo));
    }

    #[test]
    fn a_hole_does_not_end_a_lookup() {
        let table = Table::new(1);
        let first = |key| core::ptr::from_ref(table.probe(key).next().unwrap());
        let neighbours: Vec<usize> = (0..)
            .map(key)
            .filter(|&each| first(each) == first(key(0)))
            .take(6)
            .collect();
        for (node, &lock) in (1..).zip(&neighbours) {
            assert_eq!(
                table.insert(&Solo, lock, node),
                u64::from(node),
                "earlier entries should be in use"
            );
        }
        assert_eq!(table.remove(&Solo, neighbours[1]), 2);
        assert_eq!(table.remove(&Solo, neighbours[5]), 6);
        assert_eq!(
            table.insert(&Solo, neighbours[5], 7),
            2,
            "the hole should be used again"
        );
        assert_eq!(table.remove(&Solo, neighbours[5]), 7);
    }

    #[test]
    fn a_cleared_table_is_empty_and_has_all_its_room() {
        let table = Table::new(256);
        for _ in 0..2 {
            (0..256).for_each(|index| _ = table.insert(&Solo, key(index), 1));
            assert!(!table.is_empty(&Solo));
            table.clear(&Solo);
            assert!(table.is_empty(&Solo));
        }
    }

    #[test]
    #[should_panic(expected = "no entry left among 256")]
    fn one_waiter_too_many_is_refused() {
        let table = Table::new(256);
        (0..257).for_each(|index| _ = table.insert(&Solo, key(index), 1));
    }
}
