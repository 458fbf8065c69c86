//! Buffers of a balancing pass.

use alloc::vec::Vec;

/// Buffers that passes reuse.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Scratch {
    /// pCPUs found to have only pinned threads.
    pub(super) excluded: Vec<u32>,
}
