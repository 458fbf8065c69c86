//! The locks under loom and under Shuttle, one file each, and faults planted in them.
//!
//! `cargo test -p holdfast-model -- --nocapture` prints what each search has explored.

mod avic;
mod faults;
mod loom;
mod posting;
mod shuttle;
mod support;
