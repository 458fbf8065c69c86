//! Queue of optimistic spinners (Linux: OSQ): those who spin for a lock that sleeps, one of them at a time on the lock
//! itself, and any of them free to leave.
//!
//! A mutex whose owner runs is worth spinning for, but not by everybody at once. The queue's head spins on the mutex; the
//! others spin on nodes of their own, one for each CPU, and go to sleep instead when they have something better to do or
//! when the CPU before them is off: it will not hand over soon.
//!
//! | word | |
//! |---|---|
//! | `tail` | CPU + 1 of the last in the queue; 0: empty |
//! | `next`, `prev` | CPU + 1 of the neighbours; `next` 0: none, or not linked yet, or taken away |
//! | `locked` | not 0: this CPU is the head |
//!
//! - **One head**: the exchange of the tail that finds 0, or a store to `locked` by the head before, makes a head.
//! - **One pointer**: a node is in `next` of at most one other, and who removes it from there, by an exchange, alone may
//!   hand over to it, or go: its owner leaves only after it has removed itself.
//! - **A link taken is put back**: who goes and has taken its successor off its own `next` links it to its predecessor;
//!   the predecessor waits for that, as the tail is not its own.
//!
//! Leaving takes three steps (docs/spec/guest-locks.md, "Preempted flag and optimistic spinning"). **A**: remove
//! oneself from the predecessor. If that fails it has just handed over, or is leaving itself and will say who comes
//! before it. **B**: find out who comes behind: nobody, then the tail goes back to the predecessor; or take the
//! successor off one's own node. **C**: join the two.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{Budget, CpuId, Line, Platform, Word};
use crate::steps::{AllSteps, Steps};

/// Iterations between two looks at whether to leave. Linux looks at each; a CPU that is off its pCPU stays off for far
/// longer.
const LOOK_INTERVAL: Budget = Budget(64);
/// Iterations on one of two words, either of which may change, before the other is looked at.
const ALTERNATION: Budget = Budget(8);

/// A CPU's place in a queue.
#[derive(Debug)]
#[repr(align(64))]
struct Node<W> {
    next: W,
    prev: W,
    locked: W,
}

/// The nodes of all CPUs of one guest. A CPU is in one queue at a time: it must not be interrupted by somebody who queues.
#[derive(Debug)]
pub struct OsqTable<W> {
    nodes: Box<[Node<W>]>,
}

impl<W: Word<u32>> OsqTable<W> {
    /// Free nodes for `cpus` CPUs.
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

/// A queue of optimistic spinners. `S` plants faults in tests.
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
    /// An empty queue.
    pub fn new() -> Self {
        Osq {
            tail: W::new(0),
            steps: PhantomData,
        }
    }

    /// Says which line the queue's word lies on: that of the lock that it serves.
    pub fn place(&self, line: Line) {
        self.tail.place(line);
    }
}

impl<W: Word<u32>, S: Steps> Osq<W, S> {
    /// Queues, and waits to become the head. False: `leaves`, which is given the CPU before this one, has said so now and
    /// then, and the caller is not in the queue.
    pub fn lock<P>(&self, cpu: &P, table: &OsqTable<W>, leaves: impl Fn(CpuId) -> bool) -> bool
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        // ORDERING: Relaxed, both; published by the exchange of the tail.
        cpu.store(&me.next, 0, Relaxed);
        cpu.store(&me.locked, 0, Relaxed);
        // ORDERING: Release publishes the node. Acquire pairs with the Release of the head that left the queue empty, or of
        // the predecessor's own exchange: its node may be written to.
        let previous = cpu.swap(&self.tail, code, AcqRel);
        if previous == 0 {
            return true;
        }
        // ORDERING: Relaxed; published with the link: from then on only a predecessor that leaves changes it.
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

    /// The head goes, and makes its successor the head.
    pub fn unlock<P>(&self, cpu: &P, table: &OsqTable<W>)
    where
        P: Platform<Word = W>,
    {
        if let Some(next) = self.take_successor(cpu, table, 0) {
            // ORDERING: Release; pairs with the Acquire in `lock` and `leave`: the next head sees what this one did.
            cpu.store(&table.at(next).locked, 1, Release);
        }
    }

    /// Whether the queue was empty a moment ago.
    pub fn is_empty<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W>,
    {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(&self.tail, Relaxed) == 0
    }

    /// Takes the caller out of the queue. True: too late, it has become the head.
    fn leave<P>(&self, cpu: &P, table: &OsqTable<W>) -> bool
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        // Step A.
        let previous = loop {
            // ORDERING: Acquire; pairs with the Release of a predecessor that left: its own predecessor's node may be used.
            let previous = cpu.load(&me.prev, Acquire);
            // ORDERING: Relaxed on both; **One pointer**: it only says who may go on. What a predecessor left behind is
            // published by `prev`, what this CPU leaves behind by step B or C.
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
        // Step C. In this order: linked, the successor may itself leave, and needs to know its predecessor.
        // ORDERING: Release; pairs with the Acquire in step A of the successor.
        cpu.store(&table.at(next).prev, previous, Release);
        if S::LEAVE_RELINK {
            // ORDERING: Release; pairs with the Acquire of whoever takes the link.
            cpu.store(&table.at(previous).next, next, Release);
        }
        false
    }

    /// The successor, which is on its way or has left; in the latter case the tail goes to `previous`, and there is none.
    fn take_successor<P>(&self, cpu: &P, table: &OsqTable<W>, previous: u32) -> Option<u32>
    where
        P: Platform<Word = W>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        loop {
            // ORDERING: Relaxed; the exchange confirms it. Release: pairs with the Acquire of the next who finds this tail.
            // Acquire: pairs with the Release of a successor that gave the tail back: it is done with this node.
            if cpu.load(&self.tail, Relaxed) == code
                && cpu
                    .compare_exchange(&self.tail, code, previous, AcqRel, Relaxed)
                    .is_ok()
            {
                return None;
            }
            // ORDERING: Relaxed; the exchange acquires.
            if let Ok(seen) = cpu.wait_until(&me.next, ALTERNATION, Relaxed, |next| next != 0) {
                // By exchange: left in place, the link would let the successor leave by step A while this CPU hands over
                // to it, or joins it to another.
                // ORDERING: Acquire; pairs with the Release of the link: the successor's node may be written to.
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
