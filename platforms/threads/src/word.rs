//! Shared words, and the machine instructions on them.
//!
//! A lock word is accessed in parts: byte, half-word, whole. Rust's memory model has no racing accesses of different
//! sizes, x86 has. So on x86-64 *every* access to a word is an instruction of our own, which the compiler neither sees
//! into nor moves memory accesses across; elsewhere, and under Miri, words are atomics and parts are made of whole-word
//! exchanges.
//!
//! **Total store order** (Intel SDM vol. 3A §9.2, AMD APM vol. 2 §7.2): each load acquires, each store releases, each
//! locked instruction is a full fence. Only a sequentially consistent store needs more than `mov`.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{Address, Word};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use portable::{Address, Word};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod rseq;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use rseq::has_restartable_sequences;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use rseq::settle;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

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
