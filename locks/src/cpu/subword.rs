//! Operations on some bits of a word, made of operations on the whole word.
//!
//! x86 has byte instructions. But Rust's memory model does not allow racing accesses of different sizes, and no checker
//! can express them. So the bits are named by a mask, and a [`Platform`] with machine code of its own replaces these
//! functions.

use core::sync::atomic::Ordering;

use crate::cpu::platform::Platform;

pub(crate) const LOW8: u32 = 0x0000_00ff;
pub(crate) const BYTE1: u32 = 0x0000_ff00;
pub(crate) const LOW16: u32 = 0x0000_ffff;
pub(crate) const HIGH16: u32 = 0xffff_0000;

/// Replaces the bits of `mask` by `new` if they equal `current`. The result has only those bits.
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
    // ORDERING: the caller's `failure`, because this load decides whether the exchange fails.
    let mut seen = cpu.load(word, failure);
    while seen & mask == current {
        // ORDERING: both are the caller's.
        match cpu.compare_exchange(word, seen, seen & !mask | new, success, failure) {
            Ok(_) => return Ok(current),
            Err(now) => seen = now,
        }
    }
    Err(seen & mask)
}

/// Replaces the bits of `mask` by `new` and returns the previous bits.
#[inline]
#[track_caller]
pub fn swap<P: Platform + ?Sized>(cpu: &P, word: &P::Word, mask: u32, new: u32, order: Ordering) -> u32 {
    // ORDERING: Relaxed; only a guess. The exchange below confirms it with the caller's ordering.
    let mut seen = cpu.load(word, Ordering::Relaxed);
    loop {
        // ORDERING: the caller's on success. Relaxed on failure, which only yields a better guess.
        match cpu.compare_exchange(word, seen, seen & !mask | new, order, Ordering::Relaxed) {
            Ok(before) => return before & mask,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

    use crate::cpu::platform::{Platform, Word};
    use crate::cpu::solo::{Solo, SoloWord};

    const WORDS: [u32; 5] = [0, 0xffff_ffff, 0x1234_5678, 0x8000_0001, 0x00ff_ff00];

    #[test]
    fn parts_change_and_the_rest_stays() {
        for before in WORDS {
            let after = |change: fn(&SoloWord<u32>)| {
                let word = SoloWord::new(before);
                change(&word);
                Solo.load(&word, Relaxed)
            };
            assert_eq!(
                after(|word| _ = Solo.swap_low8(word, 0xab, AcqRel)),
                before & !0xff | 0xab
            );
            assert_eq!(
                after(|word| _ = Solo.swap_low16(word, 0xabcd, AcqRel)),
                before & !0xffff | 0xabcd
            );
            assert_eq!(
                after(|word| _ = Solo.swap_high16(word, 0xabcd, AcqRel)),
                before & 0xffff | 0xabcd_0000
            );
            assert_eq!(
                after(|word| Solo.store_byte1(word, 0xab, AcqRel)),
                before & !0xff00 | 0xab00
            );
        }
    }

    #[test]
    fn the_default_compare_store_is_an_exchange_and_leaves_nothing_to_settle() {
        let word = SoloWord::new(0x1234_5601);
        assert_eq!(Solo.compare_store_low8(&word, 2, 7, AcqRel), Err(1));
        assert_eq!(Solo.compare_store_low16(&word, 0x5601, 7, AcqRel), Ok(()));
        assert_eq!(Solo.load(&word, Relaxed), 0x1234_0007);
        assert!(!Solo.settle() && !Solo.is_unsettled());
    }

    #[test]
    fn what_was_there_is_returned() {
        for before in WORDS {
            let word = || SoloWord::new(before);
            assert_eq!(Solo.swap_low8(&word(), 7, AcqRel), before as u8);
            assert_eq!(Solo.swap_low16(&word(), 7, AcqRel), before as u16);
            assert_eq!(Solo.swap_high16(&word(), 7, AcqRel), (before >> 16) as u16);
            let (low8, low16) = (before as u8, before as u16);
            assert_eq!(Solo.compare_exchange_low8(&word(), low8, 7, Acquire, Relaxed), Ok(low8));
            assert_eq!(
                Solo.compare_exchange_low8(&word(), low8 ^ 1, 7, Acquire, Relaxed),
                Err(low8)
            );
            assert_eq!(
                Solo.compare_exchange_low16(&word(), low16, 7, Acquire, Relaxed),
                Ok(low16)
            );
            assert_eq!(
                Solo.compare_exchange_low16(&word(), low16 ^ 1, 7, Acquire, Relaxed),
                Err(low16)
            );
        }
    }
}
