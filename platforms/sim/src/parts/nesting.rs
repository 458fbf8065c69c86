//! A vCPU's part in guests inside of guests.

use holdfast_host::{Exit, VcpuId};

/// A vCPU's part in nesting.
#[derive(Debug, Default)]
pub struct Nesting {
    /// The inner host of which it is a pCPU.
    pub carries_for: Option<usize>,
    /// The inner host of which it is a vCPU.
    pub host: Option<usize>,
    /// The inner vCPU that it executes, or the vCPU that executes it.
    pub peer: Option<VcpuId>,
    /// The exit of the inner vCPU that it executed, for its own inner host.
    pub exit: Option<Exit>,
}
