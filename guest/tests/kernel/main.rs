//! Tests of the kernel by small programs in virtual time.
#![allow(missing_docs)]

mod disks;
mod interrupts;
mod ipc;
mod machine;
mod measured;
mod memory;
mod mutex;
mod network;
mod operations;
mod processes;
mod pthread;
mod scheduling;
mod smp;
