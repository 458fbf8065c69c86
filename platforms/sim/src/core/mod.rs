//! Virtual time and the events to come, what time is spent on, and why a run ends.

pub mod cause;
pub mod clock;
pub mod failure;
pub mod pending;
