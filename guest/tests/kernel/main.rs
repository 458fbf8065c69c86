//! Tests of the kernel by small programs in virtual time.
#![allow(missing_docs)]

mod balancing;
mod bare;
mod block;
mod blocks;
mod counters;
mod disks;
mod idle;
mod interrupts;
mod ipc;
mod machine;
mod measured;
mod meetings;
mod memory;
mod micro;
mod mutex;
mod network;
mod operations;
mod placement;
mod processes;
mod pthread;
mod scheduling;
mod sleeping;
mod smp;
