//! Operations on a part of a word, made of operations on the whole word.
//!
//! Rust's memory model has no racing accesses of different sizes, and no checker can express them; x86 has byte
//! instructions. So a part is named by a mask, and a [`Platform`] that owns its machine code replaces these.

use core::sync::atomic::Ordering;

use crate::platform::Platform;

pub(crate) const LOW8: u32 = 0x0000_00ff;
pub(crate) const BYTE1: u32 = 0x0000_ff00;
pub(crate) const LOW16: u32 = 0x0000_ffff;
pub(crate) const HIGH16: u32 = 0xffff_0000;

/// Exchanges the bits of `mask` if they equal `current`; the result has only those bits.
#[inline]
#[track_caller]
pub(crate) fn compare_exchange<P: Platform + ?Sized>(
    cpu: &P,
    word: &P::Word,
    mask: u32,
    current: u32,
    new: u32,
    success: Ordering,
    failure: Ordering,
) -> Result<u32, u32> {
    // ORDERING: the caller's `failure`, because this load decides a failed exchange.
    let mut seen = cpu.load(word, failure);
    while seen & mask == current {
        // ORDERING: the caller's.
        match cpu.compare_exchange(word, seen, seen & !mask | new, success, failure) {
            Ok(_) => return Ok(current),
            Err(now) => seen = now,
        }
    }
    Err(seen & mask)
}

/// Exchanges the bits of `mask` for `new`; the result has only those bits.
#[inline]
#[track_caller]
pub(crate) fn swap<P: Platform + ?Sized>(cpu: &P, word: &P::Word, mask: u32, new: u32, order: Ordering) -> u32 {
    // ORDERING: Relaxed; only a guess, which the exchange below confirms with the caller's ordering.
    let mut seen = cpu.load(word, Ordering::Relaxed);
    loop {
        // ORDERING: the caller's on success; a failure only brings a better guess.
        match cpu.compare_exchange(word, seen, seen & !mask | new, order, Ordering::Relaxed) {
            Ok(before) => return before & mask,
            Err(now) => seen = now,
        }
    }
}
