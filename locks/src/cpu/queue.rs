//! Queue nodes, on which the waiters of queued locks spin instead of the lock word.
//!
//! Each CPU has four static nodes, one for each context that can interrupt another and wait, too. A node is named by a
//! *code*: CPU and index, as they stand in the tail field of a lock word. Links between nodes are codes, never
//! pointers.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use crate::cpu::layout::{Layout, NODES_PER_CPU};
use crate::cpu::platform::{CpuId, Line, Platform, Word, wait_for};
use crate::cpu::slots::Slots;

/// The place of one waiter in a queue. It takes half a cache line, like `struct qnode` of Linux 5.0 and later. (In
/// Linux 4.2 to 4.20 the paravirtual state was on a second line.)
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Node<W> {
    /// The code of the successor, or 0.
    pub next: W,
    /// Not 0 once the predecessor has handed over. In watching locks: 1 then, and before an even number, the question
    /// of the head. In CNA: 1, or the code of the last waiter of the secondary queue.
    pub locked: W,
    /// In paravirtual locks: the state of the waiter (see `pv_wait`). In the unfair lock: how often the waiter tries to
    /// steal, as a mask. In watching locks: the question of the head that was answered last.
    pub state: W,
    /// In unfair and watching locks: the code of the predecessor. In CNA: the time since when the secondary queue
    /// waits.
    pub extra: W,
    /// In CNA: the NUMA node that the waiter counts as.
    pub numa: W,
    /// In the first node of a CPU: how many of its nodes are in use. Only that CPU accesses it.
    depth: W,
}

impl<W> Node<W> {
    /// Makes an unused node of six words, which must be zero. Usable in a `static`.
    pub const fn from_words(next: W, locked: W, state: W, extra: W, numa: W, depth: W) -> Self {
        Node {
            next,
            locked,
            state,
            extra,
            numa,
            depth,
        }
    }
}

impl<W: Word<u32>> Node<W> {
    fn new() -> Self {
        let zero = || W::new(0);
        Node::from_words(zero(), zero(), zero(), zero(), zero(), zero())
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

/// The number of nodes on a cache line of 64 bytes.
const NODES_PER_LINE: usize = 2;

/// The nodes of one CPU, on cache lines of their own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CpuNodes<W> {
    nodes: [Node<W>; NODES_PER_CPU],
    /// The state of this CPU's random number generator, in CNA.
    pub(crate) random: W,
}

impl<W> CpuNodes<W> {
    /// Makes the unused nodes of one CPU. `random` must be zero. Usable in a `static`.
    pub const fn from_nodes(nodes: [Node<W>; NODES_PER_CPU], random: W) -> Self {
        CpuNodes { nodes, random }
    }
}

/// The queue nodes of all CPUs of one guest.
#[derive(Debug)]
#[repr(C)]
pub struct NodeTable<W: 'static> {
    cpus: Slots<CpuNodes<W>>,
}

impl<W> NodeTable<W> {
    /// Makes a table of unused nodes, of which those in use take up memory. Usable in a `static`.
    pub const fn from_static(cpus: &'static [CpuNodes<W>]) -> Self {
        NodeTable {
            cpus: Slots::Static(cpus),
        }
    }

    /// Returns the nodes of `cpu`.
    pub(crate) fn of(&self, cpu: CpuId) -> &CpuNodes<W> {
        &self.cpus[cpu.0 as usize]
    }
}

impl<W: Word<u32>> NodeTable<W> {
    /// Makes unused nodes for `cpus` CPUs: 128 bytes of nodes for each, on cache lines of its own.
    pub fn new(cpus: usize) -> Self {
        let cpu = |_| CpuNodes {
            nodes: core::array::from_fn(|_| Node::new()),
            random: W::new(0),
        };
        let cpus: Slots<CpuNodes<W>> = (0..cpus).map(cpu).collect();
        for nodes in cpus.iter().flat_map(|cpu| cpu.nodes.chunks(NODES_PER_LINE)) {
            let line = nodes[0].next.line();
            nodes.iter().for_each(|node| node.place(line));
        }
        NodeTable { cpus }
    }

    /// Gives up all nodes of `gone`, a CPU that has vanished while it waited.
    pub fn abandon<P: Platform<Word = W>>(&self, cpu: &P, gone: CpuId) {
        // ORDERING: Relaxed; no other CPU runs that could see it.
        cpu.store(&self.of(gone).nodes[0].depth, 0, Relaxed);
    }

    /// Returns the node that `code` names.
    pub(crate) fn at<L: Layout>(&self, code: u32) -> &Node<W> {
        let (cpu, index) = L::decode(code);
        &self.of(cpu).nodes[index]
    }
}

/// A CPU with four queue nodes, one for each context that can nest: task, softirq, hardirq, NMI.
///
/// # Safety
/// All CPUs that share a lock must return the same table, which must have nodes for each of their numbers.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Nodes: Platform {
    /// Returns the queue nodes of all CPUs.
    fn nodes(&self) -> &NodeTable<Self::Word>;
    /// Returns whether this CPU has a number, by which the table has nodes for it. A CPU without nodes does not queue,
    /// but tries to take the lock past the queue.
    #[inline(always)]
    fn has_nodes(&self) -> bool {
        true
    }
}

/// A CPU whose NUMA node is known, for locks that prefer waiters on the holder's node.
///
/// Exclusion does not rest on this trait: a wrong answer costs only time and fairness.
pub trait Numa: Nodes {
    /// Returns the NUMA node of `cpu`. Numbers of nodes are dense, start at 0 and are less than 65535.
    fn numa_node(&self, cpu: CpuId) -> u32;
    /// Returns monotonic time in nanoseconds, by which the wait of other nodes is bounded.
    fn monotonic_ns(&self) -> u64;
    /// Returns whether waiters of other nodes must not be preferred to the caller: it is an interrupt handler, has
    /// interrupts masked, or is a real-time task.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// A waiter: its node and the node's code.
#[derive(Debug)]
pub struct Waiter<'a, W> {
    pub(crate) node: &'a Node<W>,
    pub(crate) code: u32,
}

impl<W: Word<u32> + 'static> Waiter<'_, W> {
    /// Returns the waiter at the node that `code` names.
    ///
    /// # Safety
    /// The caller holds a lock of the layout `L`, and the waiter is the head of its queue.
    #[expect(unsafe_code, reason = "gives access to another CPU's node")]
    pub unsafe fn listed<L: Layout, P: Nodes<Word = W>>(cpu: &P, code: u32) -> Waiter<'_, W> {
        Waiter {
            node: cpu.nodes().at::<L>(code),
            code,
        }
    }

    /// Returns the waiter's node.
    pub fn node(&self) -> &Node<W> {
        self.node
    }

    /// Returns the code of the waiter's node.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// Returns the node that `code`, which is not 0, names: another waiter's of the same queue.
    pub fn at<'c, L: Layout, P: Nodes<Word = W>>(&self, cpu: &'c P, code: u32) -> &'c Node<W> {
        cpu.nodes().at::<L>(code)
    }

    /// Returns a word that this CPU keeps for a random number generator, and that is 0 first.
    pub fn random<'c, P: Nodes<Word = W>>(&self, cpu: &'c P) -> &'c W {
        &cpu.nodes().of(cpu.cpu()).random
    }
}

/// Takes the next level of nesting on this CPU. Returns the number of levels that were in use before, or `None` if this
/// CPU has no nodes.
///
/// **Nested use**: an interrupt handler that runs in between restores the depth. So plain loads and stores are enough,
/// as long as the compiler keeps them before and after the use of the level.
pub(crate) fn enter<P: Nodes>(cpu: &P) -> Option<usize> {
    if !cpu.has_nodes() {
        return None;
    }
    let depth = &cpu.nodes().of(cpu.cpu()).nodes[0].depth;
    // ORDERING: Relaxed, both; only this CPU and its own interrupts use the depth.
    let level = cpu.load(depth, Relaxed);
    cpu.store(depth, level + 1, Relaxed);
    // An interrupt handler must see the new depth before the node is used.
    compiler_fence(SeqCst);
    Some(level as usize)
}

/// Gives back the level that [`enter`] took.
pub(crate) fn leave<P: Nodes>(cpu: &P, level: usize) {
    // The node must be out of use before an interrupt handler sees the old depth.
    compiler_fence(SeqCst);
    // ORDERING: Relaxed; as in `enter`.
    cpu.store(&cpu.nodes().of(cpu.cpu()).nodes[0].depth, level as u32, Relaxed);
}

/// Returns the node at `level`, ready to be queued, or `None` if all nodes are in use.
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

/// Waits for the link to the successor, which has already replaced the tail, and returns the successor's code.
pub fn successor<P: Platform>(cpu: &P, node: &Node<P::Word>) -> u32 {
    // ORDERING: Acquire; pairs with the Release store that linked the successor, after which its node may be accessed.
    wait_for(cpu, &node.next, Acquire, |next| next != 0)
}
