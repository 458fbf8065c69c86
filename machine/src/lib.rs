//! Simulated hardware in virtual time: pCPUs, cache lines, pause loops, VM exits, interrupts, timers.
#![forbid(unsafe_code)]

mod profile;
mod time;

pub use profile::{Costs, Ple, Profile, Topology};
pub use time::{Picos, Time};
