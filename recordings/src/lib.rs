//! Traces of real hosts: which threads are vCPUs, and where the time of each guest went.
//!
//! `event.rs` has the events that all formats are read into. Readers yield them in the order of their times, in bounded
//! memory. `hosts/mod.rs` finds VMs, `timeline/mod.rs` follows each vCPU, and `account/mod.rs` adds up.

pub mod account;
pub mod event;
pub mod hosts;
pub mod read;
pub mod timeline;
