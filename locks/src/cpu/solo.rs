//! A machine with one CPU and no concurrency, for unit tests that need a [`Platform`] but no race.

#![expect(unsafe_code, reason = "implements the platform traits")]

extern crate std;

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::cpu::platform::{CpuId, Platform, Word};

pub(crate) struct SoloWord<T>(Cell<T>);

impl<T> Word<T> for SoloWord<T> {
    fn new(value: T) -> Self {
        SoloWord(Cell::new(value))
    }
}

pub(crate) struct Solo;

fn exchange<T: Copy + PartialEq>(word: &Cell<T>, current: T, new: T) -> Result<T, T> {
    let found = word.get();
    if found == current {
        word.set(new);
        return Ok(found);
    }
    Err(found)
}

// SAFETY: there is one CPU, and its words cannot be shared between threads.
unsafe impl Platform for Solo {
    type Word = SoloWord<u32>;
    type Address = SoloWord<usize>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn key(&self, word: &Self::Word) -> usize {
        core::ptr::from_ref(word).addr()
    }
    fn load(&self, word: &Self::Word, _: Ordering) -> u32 {
        word.0.get()
    }
    fn store(&self, word: &Self::Word, value: u32, _: Ordering) {
        word.0.set(value);
    }
    fn store_low8(&self, word: &Self::Word, value: u8, _: Ordering) {
        word.0.set(word.0.get() & !0xff | u32::from(value));
    }
    fn store_low16(&self, word: &Self::Word, value: u16, _: Ordering) {
        word.0.set(word.0.get() & !0xffff | u32::from(value));
    }
    fn swap(&self, word: &Self::Word, value: u32, _: Ordering) -> u32 {
        word.0.replace(value)
    }
    fn compare_exchange(
        &self,
        word: &Self::Word,
        current: u32,
        new: u32,
        _: Ordering,
        _: Ordering,
    ) -> Result<u32, u32> {
        exchange(&word.0, current, new)
    }
    fn fetch_add(&self, word: &Self::Word, value: u32, _: Ordering) -> u32 {
        word.0.replace(word.0.get().wrapping_add(value))
    }
    fn fetch_or(&self, word: &Self::Word, bits: u32, _: Ordering) -> u32 {
        word.0.replace(word.0.get() | bits)
    }
    fn fetch_and(&self, word: &Self::Word, bits: u32, _: Ordering) -> u32 {
        word.0.replace(word.0.get() & bits)
    }
    fn load_address(&self, word: &Self::Address, _: Ordering) -> usize {
        word.0.get()
    }
    fn store_address(&self, word: &Self::Address, value: usize, _: Ordering) {
        word.0.set(value);
    }
    fn compare_exchange_address(
        &self,
        word: &Self::Address,
        current: usize,
        new: usize,
        _: Ordering,
        _: Ordering,
    ) -> Result<usize, usize> {
        exchange(&word.0, current, new)
    }
    fn fence(&self, _: Ordering) {}
    fn relax(&self) {
        let count = relaxed();
        assert!(
            count < RELAXED_MAX,
            "the only CPU cannot wait: no other CPU will write the word"
        );
        RELAXED.set(count + 1);
    }
}

/// More iterations than any wait of these tests has.
const RELAXED_MAX: u32 = 1 << 20;

std::thread_local! {
    static RELAXED: Cell<u32> = const { Cell::new(0) };
}

/// Returns how often [`Solo`] has relaxed on this thread, which is once for each iteration of a wait in vain.
pub(crate) fn relaxed() -> u32 {
    RELAXED.get()
}
