//! The locks under loom and under Shuttle, with faults planted in them; and interrupts under loom.
//!
//! `cargo test -p holdfast-model -- --nocapture` prints the number of executions of each search.

mod avic;
mod faults;
mod interrupts;
mod loom;
mod posting;
mod scenario;
mod shuttle;
mod support;
