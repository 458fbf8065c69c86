//! Queue nodes: what the queued locks spin on instead of the lock word.
//!
//! Nodes are static, four for each CPU, one for each context that can wait inside another. A node is named by a *code*:
//! CPU and index, as they stand in the tail field of a lock word. Links between nodes are codes, never pointers.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use crate::layout::{Layout, NODES_PER_CPU};
use crate::platform::{CpuId, Line, Platform, Word, wait_for};

/// One waiter's place in a queue. Half a cache line, like Linux's `struct qnode` (5.0 and later; from 4.2 on the
/// paravirtual state lay on a second line).
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Node<W> {
    /// Code of the successor, or 0.
    pub next: W,
    /// Not 0 once the predecessor has handed over. CNA: 1, or the code of the last waiter of the secondary queue.
    pub locked: W,
    /// Paravirtual: what the waiter's CPU is doing. Unfair: how often the waiter tries to steal, as a mask.
    pub state: W,
    /// Unfair: code of the predecessor. CNA: since when the secondary queue waits.
    pub extra: W,
    /// CNA: the NUMA node that the waiter counts as.
    pub numa: W,
    /// In a CPU's first node: how many of them are in use. Only its CPU touches it.
    depth: W,
}

impl<W: Word<u32>> Node<W> {
    fn new() -> Self {
        Node {
            next: W::new(0),
            locked: W::new(0),
            state: W::new(0),
            extra: W::new(0),
            numa: W::new(0),
            depth: W::new(0),
        }
    }

    fn place(&self, line: Line) {
        for word in [
            &self.next,
            &self.locked,
            &self.state,
            &self.extra,
            &self.numa,
            &self.depth,
        ] {
            word.place(line);
        }
    }
}

/// Nodes to a cache line of 64 bytes.
const NODES_PER_LINE: usize = 2;

/// The nodes of one CPU, on cache lines of their own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct CpuNodes<W> {
    nodes: [Node<W>; NODES_PER_CPU],
    /// State of this CPU's random numbers (CNA).
    pub random: W,
}

/// The queue nodes of all CPUs of one guest.
#[derive(Debug)]
pub struct NodeTable<W> {
    cpus: Box<[CpuNodes<W>]>,
}

impl<W: Word<u32>> NodeTable<W> {
    /// Free nodes for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        let cpu = |_| CpuNodes {
            nodes: core::array::from_fn(|_| Node::new()),
            random: W::new(0),
        };
        let cpus: Box<[CpuNodes<W>]> = (0..cpus).map(cpu).collect();
        for nodes in cpus.iter().flat_map(|cpu| cpu.nodes.chunks(NODES_PER_LINE)) {
            let line = nodes[0].next.line();
            nodes.iter().for_each(|node| node.place(line));
        }
        NodeTable { cpus }
    }

    /// The nodes of `cpu`.
    pub(crate) fn of(&self, cpu: CpuId) -> &CpuNodes<W> {
        &self.cpus[cpu.0 as usize]
    }

    /// The node that `code` names.
    pub(crate) fn at<L: Layout>(&self, code: u32) -> &Node<W> {
        let (cpu, index) = L::decode(code);
        &self.of(cpu).nodes[index]
    }
}

/// A CPU with queue nodes: four per CPU, one per context that can nest (task, softirq, hardirq, NMI).
///
/// # Safety
/// All CPUs that share a lock must return the same table, with a place for each of their numbers.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Nodes: Platform {
    /// The queue nodes of all CPUs.
    fn nodes(&self) -> &NodeTable<Self::Word>;
}

/// A CPU whose place in the machine's NUMA topology is known, for locks that prefer their own node.
///
/// Exclusion does not rest on it: a wrong answer costs time and fairness only.
pub trait Numa: Nodes {
    /// The NUMA node of `cpu`: dense, from 0, less than 65535.
    fn numa_node(&self, cpu: CpuId) -> u32;
    /// Monotonic time in nanoseconds: how long other nodes have been kept waiting.
    fn monotonic_ns(&self) -> u64;
    /// Whether the caller must not be kept waiting in favour of others: an interrupt's handler, interrupts masked, or a
    /// real-time task.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// A waiter: its node and the code of it.
pub(crate) struct Waiter<'a, W> {
    pub node: &'a Node<W>,
    pub code: u32,
}

/// The levels of nesting on this CPU that were in use before the caller, who takes the next.
///
/// **Nested use**: an interrupt's handler that comes in between leaves the depth as it was. So plain loads and stores
/// will do, as long as the compiler keeps them before and after what the level is used for.
pub(crate) fn enter<P: Nodes>(cpu: &P) -> usize {
    let depth = &cpu.nodes().of(cpu.cpu()).nodes[0].depth;
    // ORDERING: Relaxed, both; only this CPU and its own interrupts use the depth.
    let level = cpu.load(depth, Relaxed);
    cpu.store(depth, level + 1, Relaxed);
    // An interrupt must see the new depth before the node is used.
    compiler_fence(SeqCst);
    level as usize
}

/// Ends what [`enter`] began.
pub(crate) fn leave<P: Nodes>(cpu: &P, level: usize) {
    // The node must be out of use before an interrupt sees the old depth.
    compiler_fence(SeqCst);
    // ORDERING: Relaxed; as in `enter`.
    cpu.store(&cpu.nodes().of(cpu.cpu()).nodes[0].depth, level as u32, Relaxed);
}

/// The node at `level`, ready to be queued, or none if all are in use.
pub(crate) fn claim<L: Layout, P: Nodes>(cpu: &P, level: usize) -> Option<Waiter<'_, P::Word>> {
    let node = cpu.nodes().of(cpu.cpu()).nodes.get(level)?;
    // ORDERING: Relaxed, both; published by the exchange of the tail.
    cpu.store(&node.locked, 0, Relaxed);
    cpu.store(&node.next, 0, Relaxed);
    Some(Waiter {
        node,
        code: L::encode(cpu.cpu(), level),
    })
}

/// Waits for the successor, which is known to be on its way, and returns its code.
pub(crate) fn successor<P: Platform>(cpu: &P, node: &Node<P::Word>) -> u32 {
    // ORDERING: Acquire; pairs with the Release store that linked it, after which its node may be used.
    wait_for(cpu, &node.next, Acquire, |next| next != 0)
}
