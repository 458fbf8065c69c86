//! Buffers of a balancing pass.

use alloc::vec::Vec;

/// Buffers that passes reuse.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Scratch {
    /// pCPUs that have only pinned threads.
    pub(super) excluded: Vec<u32>,
}
