//! A guest kernel in miniature, generic over the machine beneath it.
#![no_std]

extern crate alloc;

mod machine;

pub use machine::{Cpu, GuestImage, Machine, Mode, Report};
