//! The sequence of states of each vCPU, from the events of a recording.
//!
//! - **Streaming**: memory is bounded by the numbers of threads, CPUs and vCPUs that are alive.
//! - **No gap, no overlap**: the spans of a vCPU follow each other from the first event of its thread to its end. They
//!   sum to its recorded time, to the nanosecond.
//! - **No guess**: a time in which events are missing, or contradict each other, is [`State::Unknown`].
//!
//! `follow.rs` has the rules for each event, `vcpu.rs` the state of a vCPU, `reasons.rs` the names of exits.

mod cpus;
mod follow;
pub mod reasons;
mod step;
mod vcpu;

pub use follow::{Faults, Follower, Seen};
pub use step::{How, Occupant, Sink, State, Step, VcpuIndex, Waker};
