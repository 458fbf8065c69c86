//! Traces of real hosts: which threads are vCPUs, and where the time of each guest went.
//!
//! `event.rs` has the events that all formats are read into. Readers yield them in the order of their times, in bounded
//! memory.

pub mod event;
pub mod read;
