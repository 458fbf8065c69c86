//! Shared words, and the machine instructions on them.
//!
//! A lock word is accessed in parts: byte, half-word, whole. Rust's memory model has no racing accesses of different
//! sizes, x86 has. So on x86-64 *every* access to a word is an instruction of our own, which the compiler neither sees
//! into nor moves memory accesses across; elsewhere, and under Miri, words are atomics and parts are made of whole-word
//! exchanges.
//!
//! **Total store order**: see `holdfast_words`, which has the instructions.

use core::sync::atomic::Ordering;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use holdfast_words::{Address, Word};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use portable::{Address, Word};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod rseq;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use rseq::has_restartable_sequences;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use rseq::settle;

/// Compare-stores: see [`Platform::compare_store_low8`](holdfast_locks::Platform::compare_store_low8).
pub(crate) trait CompareStore {
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8>;
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16>;
}

/// Compare-stores are exchanges: there is nothing to settle.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn settle() -> bool {
    false
}

/// Whether unlocks use restartable sequences in this process.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub fn has_restartable_sequences() -> bool {
    false
}

#[cfg(test)]
mod tests;

#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod portable;
