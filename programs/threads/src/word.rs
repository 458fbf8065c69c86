//! Shared words, and the machine instructions on them.
//!
//! Locks access a word whole, by half-word and by byte. Rust's memory model does not allow racing accesses of different
//! sizes; x86 does. So on x86-64 *every* access to a word is inline assembly, across which the compiler moves no memory
//! access. On other targets and under Miri a word is an atomic integer, and its parts are accessed by exchanges of the
//! whole word. On arm64, too: see `portable`. So it is with `--cfg holdfast_atomics`, for ThreadSanitizer, which does
//! not see what assembly orders.
//!
//! **Total store order**: see `holdfast_words`, which has the instructions.

use core::sync::atomic::Ordering;

#[cfg(all(target_arch = "x86_64", not(any(miri, holdfast_atomics))))]
pub(crate) use holdfast_words::{Address, Word};

#[cfg(not(all(target_arch = "x86_64", not(any(miri, holdfast_atomics)))))]
pub(crate) use portable::{Address, Word};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
mod rseq;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
pub use rseq::has_restartable_sequences;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics))))]
pub(crate) use rseq::{forked, interrupt_others, is_unsettled, look, registration, settle, withdraw};

/// Words with compare-stores; see [`Platform::compare_store_low8`](holdfast_locks::Platform::compare_store_low8).
pub(crate) trait CompareStore {
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8>;
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16>;
}

/// Without restartable sequences a compare-store is an exchange.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux"), not(any(miri, holdfast_atomics))))]
impl CompareStore for Word {
    #[inline(always)]
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        self.compare_exchange_low8(current, new, order, Ordering::Relaxed)
            .map(drop)
    }
    #[inline(always)]
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        self.compare_exchange_low16(current, new, order, Ordering::Relaxed)
            .map(drop)
    }
}

/// Returns `false`: compare-stores are exchanges, so there is nothing to wait for.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub(crate) fn settle() -> bool {
    false
}

/// Does nothing: there are no sequences that other threads must know to be over.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub(crate) fn interrupt_others() {}

/// Returns `false`: there is nothing to wait for.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub(crate) fn is_unsettled() -> bool {
    false
}

/// Does nothing: there are no sequences.
#[cfg(all(
    target_os = "linux",
    not(all(target_arch = "x86_64", not(any(miri, holdfast_atomics))))
))]
pub(crate) fn forked() {}

/// Does nothing: there is nothing to look up.
#[cfg(all(
    target_os = "linux",
    not(all(target_arch = "x86_64", not(any(miri, holdfast_atomics))))
))]
pub(crate) fn look(_own: bool) {}

/// Does nothing: no thread announces sequences.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub(crate) fn withdraw() {}

/// Returns whether unlocks use restartable sequences in this process, at least while few threads sleep.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, holdfast_atomics)))))]
pub fn has_restartable_sequences() -> bool {
    false
}

#[cfg(test)]
mod tests;

#[cfg(any(test, not(all(target_arch = "x86_64", not(any(miri, holdfast_atomics))))))]
mod portable;
