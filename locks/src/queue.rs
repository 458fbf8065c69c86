//! Queue nodes: what the queued locks spin on instead of the lock word.

use alloc::boxed::Box;

use crate::platform::Word;

/// Contexts that can nest on one CPU: task, softirq, hardirq, NMI.
pub const NODES_PER_CPU: usize = 4;

/// One waiter's place in a queue.
#[derive(Debug)]
pub struct Node<W> {
    /// Encoded tail (CPU and index) of the successor, or 0.
    pub next: W,
    /// Not 0 once the predecessor has handed over.
    pub locked: W,
    /// What the waiter's CPU is doing (paravirtual locks).
    pub state: W,
}

/// The queue nodes of all CPUs of one guest.
#[derive(Debug)]
pub struct NodeTable<W> {
    /// `NODES_PER_CPU` nodes for each CPU.
    pub nodes: Box<[[Node<W>; NODES_PER_CPU]]>,
}

impl<W: Word<u32>> NodeTable<W> {
    /// Free nodes for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        let node = |_| Node {
            next: W::new(0),
            locked: W::new(0),
            state: W::new(0),
        };
        NodeTable {
            nodes: (0..cpus).map(|_| core::array::from_fn(node)).collect(),
        }
    }
}
