//! Words without machine code: atomic integers that are accessed only as a whole. Their parts are accessed by
//! read-modify-writes of the whole word: by one instruction if the part becomes 0, otherwise by a compare-exchange
//! loop.
//!
//! So the word has one order of modification, as in the model checkers: what they prove about a lock holds for these
//! words. On arm64, byte instructions would be shorter. But two CPUs that each write a byte and read the other's may
//! both read the old value there, which no checker here could find.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::CompareStore;

const LOW8: u32 = 0x0000_00ff;
const BYTE1: u32 = 0x0000_ff00;
const LOW16: u32 = 0x0000_ffff;
const HIGH16: u32 = 0xffff_0000;

/// A 32-bit word whose bytes and half-words can be accessed, too.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU32);

/// A pointer-sized word.
#[derive(Debug)]
#[repr(transparent)]
pub struct Address(AtomicUsize);

/// The ORDERING of each operation is the caller's.
impl Word {
    #[inline(always)]
    pub(crate) const fn new(value: u32) -> Self {
        Word(AtomicU32::new(value))
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    #[inline(always)]
    pub(crate) fn load_low16(&self, order: Ordering) -> u16 {
        self.0.load(order) as u16
    }
    #[inline(always)]
    pub(crate) fn load_byte1(&self, order: Ordering) -> u8 {
        (self.0.load(order) >> 8) as u8
    }
    #[inline(always)]
    pub(crate) fn load_high16(&self, order: Ordering) -> u16 {
        (self.0.load(order) >> 16) as u16
    }
    #[inline(always)]
    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    pub(crate) fn store_low8(&self, value: u8, order: Ordering) {
        self.swap_part(LOW8, value.into(), order);
    }
    #[inline(always)]
    pub(crate) fn store_low16(&self, value: u16, order: Ordering) {
        self.swap_part(LOW16, value.into(), order);
    }
    #[inline(always)]
    pub(crate) fn store_byte1(&self, value: u8, order: Ordering) {
        self.swap_part(BYTE1, u32::from(value) << 8, order);
    }
    #[inline(always)]
    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
    #[inline(always)]
    pub(crate) fn swap_low8(&self, value: u8, order: Ordering) -> u8 {
        self.swap_part(LOW8, value.into(), order) as u8
    }
    #[inline(always)]
    pub(crate) fn swap_low16(&self, value: u16, order: Ordering) -> u16 {
        self.swap_part(LOW16, value.into(), order) as u16
    }
    #[inline(always)]
    pub(crate) fn swap_high16(&self, value: u16, order: Ordering) -> u16 {
        (self.swap_part(HIGH16, u32::from(value) << 16, order) >> 16) as u16
    }
    #[inline(always)]
    pub(crate) fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }
    #[inline(always)]
    pub(crate) fn compare_exchange_low8(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.compare_exchange_part(LOW8, current.into(), new.into(), success, failure)
            .map(|before| before as u8)
            .map_err(|found| found as u8)
    }
    #[inline(always)]
    pub(crate) fn compare_exchange_low16(
        &self,
        current: u16,
        new: u16,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u16, u16> {
        self.compare_exchange_part(LOW16, current.into(), new.into(), success, failure)
            .map(|before| before as u16)
            .map_err(|found| found as u16)
    }
    #[inline(always)]
    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    #[inline(always)]
    pub(crate) fn fetch_add_high16(&self, value: u16, order: Ordering) -> u32 {
        self.0.fetch_add(u32::from(value) << 16, order)
    }
    #[inline(always)]
    pub(crate) fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_or(bits, order)
    }
    #[inline(always)]
    pub(crate) fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_and(bits, order)
    }

    /// Replaces the bits of `mask` by `new` and returns the previous bits.
    #[inline(always)]
    fn swap_part(&self, mask: u32, new: u32, order: Ordering) -> u32 {
        if new == 0 {
            return self.0.fetch_and(!mask, order) & mask;
        }
        let update = |seen| Some(seen & !mask | new);
        // The update never refuses.
        self.0.fetch_update(order, Relaxed, update).unwrap_or_else(|seen| seen) & mask
    }

    /// Replaces the bits of `mask` by `new` if they equal `current`, and returns the previous bits. Fails only because
    /// of these bits.
    #[inline(always)]
    fn compare_exchange_part(
        &self,
        mask: u32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let update = |seen| (seen & mask == current).then_some(seen & !mask | new);
        let result = self.0.fetch_update(success, failure, update);
        result.map(|before| before & mask).map_err(|found| found & mask)
    }
}

impl CompareStore for Word {
    #[inline(always)]
    fn compare_store_low8(&self, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        self.compare_exchange_low8(current, new, order, Relaxed).map(drop)
    }
    #[inline(always)]
    fn compare_store_low16(&self, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        self.compare_exchange_low16(current, new, order, Relaxed).map(drop)
    }
}

/// The ORDERING of each operation is the caller's.
impl Address {
    #[inline(always)]
    pub(crate) const fn new(value: usize) -> Self {
        Address(AtomicUsize::new(value))
    }
    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }
    #[inline(always)]
    pub(crate) fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    pub(crate) fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
