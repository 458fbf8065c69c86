//! Programs over guest services: kernel build, PostgreSQL, CPU hogs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use holdfast_guest::{GuestImage, Machine};

mod boot;
mod hog;
mod kernbench;
mod pgbench;

pub use boot::{Boot, Workload};
pub use hog::Hog;
pub use kernbench::Kernbench;
pub use pgbench::{Pgbench, Script};

/// A kernel with its workload, ready to boot on `machine`.
pub fn image<M: Machine>(machine: M, boot: &Boot) -> Box<dyn GuestImage> {
    let _ = (machine, boot);
    unimplemented!()
}
