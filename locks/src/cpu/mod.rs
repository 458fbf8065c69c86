//! What a lock needs from its CPU: the traits of platforms, the words that they operate on, queue nodes, the table of
//! halted waiters, and statistics.

pub(crate) mod hash;
pub(crate) mod layout;
pub(crate) mod paravirt;
pub(crate) mod platform;
pub(crate) mod queue;
pub(crate) mod sharing;
pub(crate) mod slots;
#[cfg(test)]
pub(crate) mod solo;
pub(crate) mod stats;
pub(crate) mod steps;
pub(crate) mod subword;
pub(crate) mod words;

pub use hash::QueueHead;
pub use layout::{Layout, Narrow, PendingLayout, Wide};
pub use paravirt::{HaltedCpu, Paravirt, WaitTable};
pub use platform::{Budget, CpuId, Interrupts, Line, Platform, Word, wait_for};
pub use queue::{CpuNodes, Node, NodeTable, Nodes, Numa};
pub use sharing::Sharing;
pub use stats::{BUCKETS, Event, LockStats, Recorder, bucket};
pub use steps::{AllSteps, Steps};
