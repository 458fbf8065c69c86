//! Virtual time and the events to come, what time is spent on, how long operations take, and why a run ends.

pub mod cause;
pub mod clock;
pub mod failure;
pub mod latencies;
pub mod pending;
