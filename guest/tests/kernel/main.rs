//! The kernel, held to its promises by small programs in virtual time.
#![allow(missing_docs)]

mod ipc;
mod machine;
mod processes;
mod scheduling;
mod smp;
