//! Queue of optimistic spinners (Linux: `kernel/locking/osq_lock.c`): the CPUs that spin for a sleeping lock. One of
//! them at a time spins on the lock itself, and any of them may leave the queue.
//!
//! It is worth spinning for a mutex whose owner runs, but not by all CPUs at once. The head of the queue spins on the
//! mutex. The others spin on nodes of their own, one for each CPU. A spinner leaves and goes to sleep if its CPU has
//! other work, or if the CPU before it is preempted and so will not hand over soon.
//!
//! | word | |
//! |---|---|
//! | `tail` | CPU + 1 of the last CPU in the queue, or 0 if the queue is empty |
//! | `next`, `prev` | CPU + 1 of the neighbors; `next` is 0 if there is none, it is not linked yet, or it was removed |
//! | `locked` | not 0 if this CPU is the head |
//!
//! - **One head**: a CPU becomes the head if its exchange of the tail finds 0, or if the previous head stores to its
//!   `locked`.
//! - **One pointer**: a node is in `next` of at most one other node. Only the CPU that removes it from there, by an
//!   exchange, may hand over to the node's owner or let it leave. The owner leaves only after it has removed itself.
//! - **A removed link is replaced**: a CPU that leaves and has removed its successor from its own `next` links the
//!   successor to its predecessor. The predecessor waits for that link, because the tail does not name it.
//!
//! A CPU leaves in three steps (docs/spec/guest-locks.md, "Preempted flag and optimistic spinning"):
//!
//! - **A**: It removes itself from its predecessor's `next`. If that fails the predecessor has just handed over, or is
//!   itself leaving and will store its own predecessor to `prev`.
//! - **B**: It removes the successor from its own node. If there is none it sets the tail back to the predecessor.
//! - **C**: It links successor and predecessor.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cpu::platform::{Budget, CpuId, Line, Platform, Word};
use crate::cpu::steps::{AllSteps, Steps};

/// The number of iterations between two checks whether to leave. Linux checks in each iteration, but a preempted CPU
/// stays preempted for far longer.
const LOOK_INTERVAL: Budget = Budget(64);
/// The number of iterations on one of two words before the other is checked. Either may change.
const ALTERNATION: Budget = Budget(8);

/// The place of a CPU in a queue.
#[derive(Debug)]
#[repr(align(64))]
struct Node<W> {
    next: W,
    prev: W,
    locked: W,
}

/// The nodes of all CPUs of one guest. A CPU is in one queue at a time, so it must not be interrupted by code that
/// queues.
#[derive(Debug)]
pub struct OsqTable<W> {
    nodes: Box<[Node<W>]>,
}

impl<W: Word<u32>> OsqTable<W> {
    /// Makes unused nodes for `cpus` CPUs, 64 bytes for each.
    pub fn new(cpus: usize) -> Self {
        let node = |_| {
            let node = Node {
                next: W::new(0),
                prev: W::new(0),
                locked: W::new(0),
            };
            let line = node.next.line();
            node.prev.place(line);
            node.locked.place(line);
            node
        };
        OsqTable {
            nodes: (0..cpus).map(node).collect(),
        }
    }

    fn at(&self, code: u32) -> &Node<W> {
        &self.nodes[code as usize - 1]
    }
}

const fn encode(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

/// A queue of optimistic spinners: one word. `S` plants faults in tests.
pub struct Osq<W, S = AllSteps> {
    tail: W,
    steps: PhantomData<fn() -> S>,
}

impl<W: fmt::Debug, S> fmt::Debug for Osq<W, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Osq").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl<W: Word<u32>, S> Default for Osq<W, S> {
    fn default() -> Self {
        Osq::new()
    }
}

impl<W: Word<u32>, S> Osq<W, S> {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Osq {
            tail: W::new(0),
            steps: PhantomData,
        }
    }

    /// Places the queue's word on a cache line: that of the sleeping lock.
    pub fn place(&self, line: Line) {
        self.tail.place(line);
    }
}

impl<W: Word<u32>, S: Steps> Osq<W, S> {
    /// Queues and waits to become the head. From time to time it calls `leaves` with the CPU before this one. Returns
    /// `true` if the caller is the head, or `false` if `leaves` returned true and the caller has left the queue.
    pub fn lock<P>(&self, cpu: &P, table: &OsqTable<W>, leaves: impl Fn(CpuId) -> bool) -> bool
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        // ORDERING: Relaxed, both; published by the exchange of the tail.
        cpu.store(&me.next, 0, Relaxed);
        cpu.store(&me.locked, 0, Relaxed);
        // ORDERING: Release publishes the node. Acquire pairs with the Release of the head that left the queue empty,
        // or with that of the predecessor's own exchange, after which its node may be written to.
        let previous = cpu.swap(&self.tail, code, AcqRel);
        if previous == 0 {
            return true;
        }
        // ORDERING: Relaxed; published with the link. From then on only a predecessor that leaves changes it.
        cpu.store(&me.prev, previous, Relaxed);
        // ORDERING: Release; pairs with the Acquire of the exchange that takes the link.
        cpu.store(&table.at(previous).next, code, Release);
        loop {
            // ORDERING: Acquire; pairs with the Release of the handover.
            if cpu
                .wait_until(&me.locked, LOOK_INTERVAL, Acquire, |locked| locked != 0)
                .is_ok()
            {
                return true;
            }
            // ORDERING: Relaxed; a hint.
            let previous = CpuId(cpu.load(&me.prev, Relaxed) - 1);
            if leaves(previous) {
                return self.leave(cpu, table);
            }
        }
    }

    /// Removes the caller, which must be the head, from the queue and makes its successor the head.
    pub fn unlock<P>(&self, cpu: &P, table: &OsqTable<W>)
    where
        P: Platform<Word = W>,
    {
        if let Some(next) = self.take_successor(cpu, table, 0) {
            // ORDERING: Release; pairs with the Acquire in `lock` and `leave`: the next head sees what this head wrote.
            cpu.store(&table.at(next).locked, 1, Release);
        }
    }

    /// Returns whether the queue was empty at some moment during the call.
    pub fn is_empty<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W>,
    {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(&self.tail, Relaxed) == 0
    }

    /// Removes the caller from the queue. Returns `true` if it was too late and the caller has become the head.
    fn leave<P>(&self, cpu: &P, table: &OsqTable<W>) -> bool
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        // Step A.
        let previous = loop {
            // ORDERING: Acquire; pairs with the Release of a predecessor that left, after which the node of the
            // predecessor's own predecessor may be accessed.
            let previous = cpu.load(&me.prev, Acquire);
            // ORDERING: Relaxed on both; by **One pointer** it only decides which CPU may continue. `prev` publishes
            // what a predecessor has written; step B or C publishes what this CPU writes.
            if cpu
                .compare_exchange(&table.at(previous).next, code, 0, Relaxed, Relaxed)
                .is_ok()
            {
                break previous;
            }
            // ORDERING: Acquire; pairs with the Release of the handover.
            let head = cpu.wait_until(&me.locked, ALTERNATION, Acquire, |locked| locked != 0);
            if S::LEAVE_RECHECK && head.is_ok() {
                return true;
            }
        };
        // Step B.
        let Some(next) = self.take_successor(cpu, table, previous) else {
            return false;
        };
        // Step C. In this order: once linked, the successor may itself leave, and then needs to know its predecessor.
        // ORDERING: Release; pairs with the Acquire in step A of the successor.
        cpu.store(&table.at(next).prev, previous, Release);
        if S::LEAVE_RELINK {
            // ORDERING: Release; pairs with the Acquire of the exchange that removes the link.
            cpu.store(&table.at(previous).next, next, Release);
        }
        false
    }

    /// Removes the successor from the caller's node and returns it. Waits for its link if it is not linked yet. Returns
    /// `None` if there is no successor; then `previous` is the new tail.
    fn take_successor<P>(&self, cpu: &P, table: &OsqTable<W>, previous: u32) -> Option<u32>
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        loop {
            // ORDERING: Relaxed load; the exchange confirms it. Release pairs with the Acquire of the next CPU that
            // finds this tail. Acquire pairs with the Release of a successor that set the tail back and no longer
            // accesses this node.
            if cpu.load(&self.tail, Relaxed) == code
                && cpu
                    .compare_exchange(&self.tail, code, previous, AcqRel, Relaxed)
                    .is_ok()
            {
                return None;
            }
            // ORDERING: Relaxed; the exchange acquires.
            if let Ok(seen) = cpu.wait_until(&me.next, ALTERNATION, Relaxed, |next| next != 0) {
                // By exchange: if the link stayed in place, the successor could leave by step A while this CPU hands
                // over to it or links it to another node.
                // ORDERING: Acquire; pairs with the Release of the link, after which the successor's node may be
                // written to.
                let next = if S::TAKE_SUCCESSOR {
                    cpu.swap(&me.next, 0, Acquire)
                } else {
                    seen
                };
                if next != 0 {
                    return Some(next);
                }
            }
        }
    }
}
