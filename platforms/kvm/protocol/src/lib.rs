//! What the VMM and the guest image must agree on: where things lie in guest memory, what the guest is to run, and what it
//! reports.
//!
//! The guest is trusted with nothing: the VMM decodes what it finds in the ring with bounds, and an unreadable message is an
//! error of the guest's ([`decode`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod layout;
mod linux;
mod message;
mod ring;
mod task;

pub use linux::{Hammer, KernelPath};
pub use message::{Contended, Crash, Message};
pub use ring::{Corrupt, RING_HEADER_BYTES, RecordHeader, RingPosition, record_bytes};
pub use task::{Clock, Contention, Fault, Orders, Task};

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Encodes `value` for the other side.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Into a growing buffer, of types without maps or unsized sequences: nothing can fail.
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Decodes what the other side encoded; `None` if that is not what `bytes` are.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
