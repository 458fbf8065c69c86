//! Traces of real hosts: which threads are vCPUs, and where the time of each guest went.
//!
//! `event.rs` has the events that all formats are read into. Readers yield them in the order of their times, in bounded
//! memory. `hosts/mod.rs` finds VMs, `timeline/mod.rs` follows each vCPU, and `account/mod.rs` adds up. `picture.rs`
//! keeps a window of it to be drawn, and `import.rs` does all of that with the files of an operator. `repeat.rs`
//! makes of it what guests of the simulator repeat.

pub mod account;
pub mod event;
pub mod hosts;
pub mod import;
pub mod picture;
pub mod read;
pub mod repeat;
pub mod timeline;
