//! Simulated hardware in virtual time: cache lines, pause loops, the order of events, and what everything costs.
#![forbid(unsafe_code)]

mod lines;
mod profile;
mod queue;
mod spin;
mod time;

pub use lines::{Access, Charge, LineId, Lines};
pub use profile::{Costs, Ple, Profile, Topology};
pub use queue::{EventQueue, Key};
pub use spin::{PauseHistory, Spin};
pub use time::{Picos, Time};
