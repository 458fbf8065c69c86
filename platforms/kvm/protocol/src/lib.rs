//! The protocol between the VMM and its guests: the layout of guest memory, the guest's orders, and its reports.
//!
//! The VMM does not trust a guest. It checks every length in the ring, and treats an unreadable message ([`decode`]) as
//! the guest's error.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod layout;
mod linux;
mod message;
mod ring;
mod task;

pub use linux::{Hammer, KernelPath, Process, Program};
pub use message::{Contended, Crash, Message};
pub use ring::{Corrupt, RING_HEADER_BYTES, RingPosition, record_bytes};
pub use task::{Clock, Contention, Fault, Heap, Orders, Task, heap_in};

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Encodes `value` for the other side.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // The buffer grows, and the types have no maps or sequences of unknown length. So encoding cannot fail.
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Decodes a value that the other side encoded. Returns `None` if `bytes` are not exactly one encoding.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
