//! A guest kernel in miniature, generic over the machine beneath it.
#![no_std]

extern crate alloc;

mod machine;
mod sync;

pub use machine::{Cpu, GuestImage, Machine, Mode, Report};
pub use sync::LockKind;
