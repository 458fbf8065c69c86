//! What a lock needs from the CPU beneath it.
//!
//! Capabilities are types. A lock that only needs atomics asks for [`Platform`]; one with queue nodes for [`Nodes`](crate::Nodes); one
//! that halts and kicks for [`Paravirt`](crate::Paravirt). A plain ticket lock therefore *cannot* kick.

#![expect(
    unsafe_code,
    reason = "exclusion rests on what implements these traits: they are unsafe to implement"
)]

use core::sync::atomic::Ordering;

use crate::stats::Event;
use crate::subword::{self, BYTE1, HIGH16, LOW8, LOW16};

/// A CPU's number: dense, from 0. Not an APIC ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// A cache line, for words that are told which one they lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub u32);

/// A shared 32-bit or pointer-sized memory word that only a [`Platform`] can operate on.
pub trait Word<T> {
    /// Makes a word that holds `value`.
    fn new(value: T) -> Self;

    /// This word's line, for others to be [placed](Word::place) on.
    ///
    /// Words in memory lie where the layout puts them, and need neither of these. They are for platforms whose words are
    /// larger than those that they stand for: what the layout says of 4 and 8 bytes, they must be told.
    #[inline]
    fn line(&self) -> Line {
        Line(0)
    }

    /// Says that this word lies on `line`, before anybody operates on it. At most one word of a line is a lock.
    #[inline]
    fn place(&self, _line: Line) {}
}

/// How long [`Platform::wait_until`] may spin.
///
/// # Units
/// Iterations of load, compare, PAUSE. What an iteration lasts depends on the CPU: about 14 cycles before Skylake, 145
/// from Skylake on (docs/spec/costs.md, "Atomics, PAUSE and locks").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub u32);

impl Budget {
    /// Wait for as long as it takes.
    pub const UNBOUNDED: Budget = Budget(u32::MAX);
}

/// The CPU that executes the caller.
///
/// # Safety
/// Mutual exclusion rests on an implementation: each operation must be atomic with respect to all others on the same
/// word, and must order at least as strongly as the [`Ordering`] it is given. Two values that can run at the same time
/// must return different [`Platform::cpu`] numbers, and a value must only be used on the CPU that it names.
pub unsafe trait Platform {
    /// A shared 32-bit word: lock words, queue links, flags.
    type Word: Word<u32>;
    /// A shared word that can hold a lock's [`key`](Platform::key).
    type Address: Word<usize>;

    /// This CPU's number.
    fn cpu(&self) -> CpuId;

    /// What identifies the lock `word`: its address, or a platform's own stable number. Never 0.
    fn key(&self, word: &Self::Word) -> usize;

    /// Loads `word`.
    fn load(&self, word: &Self::Word, order: Ordering) -> u32;
    /// Loads bits 0-15.
    #[inline]
    fn load_low16(&self, word: &Self::Word, order: Ordering) -> u16 {
        self.load(word, order) as u16
    }
    /// Stores `value` to `word`.
    fn store(&self, word: &Self::Word, value: u32, order: Ordering);
    /// Stores to bits 0-7 and leaves the others, which other CPUs may be changing, as they are.
    ///
    /// Portable code may not mix access sizes on one word, so the default is a read-modify-write; a platform that owns
    /// its machine code makes it a plain byte store.
    fn store_low8(&self, word: &Self::Word, value: u8, order: Ordering);
    /// Stores to bits 0-15 and leaves the others as they are; see [`Platform::store_low8`].
    fn store_low16(&self, word: &Self::Word, value: u16, order: Ordering);
    /// Exchanges the value of `word` for `value`.
    fn swap(&self, word: &Self::Word, value: u32, order: Ordering) -> u32;
    /// Stores `new` if `word` holds `current`; returns what it held, as `Err` if that was something else. Never fails
    /// spuriously.
    fn compare_exchange(
        &self,
        word: &Self::Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// [`Platform::compare_exchange`] on bits 0-7 only.
    ///
    /// The portable default is a loop over the whole word. It fails only because of bits 0-7, as the byte instruction
    /// would. This holds for each sub-word default below: a platform that owns its machine code replaces them all.
    #[inline]
    fn compare_exchange_low8(
        &self,
        word: &Self::Word,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        subword::compare_exchange(self, word, LOW8, current.into(), new.into(), success, failure)
            .map(|before| before as u8)
            .map_err(|found| found as u8)
    }
    /// [`Platform::compare_exchange`] on bits 0-15 only.
    #[inline]
    fn compare_exchange_low16(
        &self,
        word: &Self::Word,
        current: u16,
        new: u16,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u16, u16> {
        subword::compare_exchange(self, word, LOW16, current.into(), new.into(), success, failure)
            .map(|before| before as u16)
            .map_err(|found| found as u16)
    }
    /// [`Platform::swap`] on bits 0-7 only.
    #[inline]
    fn swap_low8(&self, word: &Self::Word, value: u8, order: Ordering) -> u8 {
        subword::swap(self, word, LOW8, value.into(), order) as u8
    }
    /// [`Platform::swap`] on bits 0-15 only.
    #[inline]
    fn swap_low16(&self, word: &Self::Word, value: u16, order: Ordering) -> u16 {
        subword::swap(self, word, LOW16, value.into(), order) as u16
    }
    /// [`Platform::swap`] on bits 16-31 only.
    #[inline]
    fn swap_high16(&self, word: &Self::Word, value: u16, order: Ordering) -> u16 {
        (subword::swap(self, word, HIGH16, u32::from(value) << 16, order) >> 16) as u16
    }
    /// Stores to bits 8-15 and leaves the others as they are; see [`Platform::store_low8`].
    #[inline]
    fn store_byte1(&self, word: &Self::Word, value: u8, order: Ordering) {
        subword::swap(self, word, BYTE1, u32::from(value) << 8, order);
    }
    /// Stores `new` to bits 0-7 if they hold `current`; else returns what they held. Atomic towards all but those
    /// read-modify-writes of the same bits that [`Platform::settle`] does not follow: it may overwrite these.
    ///
    /// For an unlocker that hands over to nobody, and a waiter who, after announcing itself in the word, settles and looks
    /// whether its announcement is still there. The default is the exchange that suits everybody.
    #[inline]
    fn compare_store_low8(&self, word: &Self::Word, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        self.compare_exchange_low8(word, current, new, order, Ordering::Relaxed)
            .map(drop)
    }
    /// [`Platform::compare_store_low8`] on bits 0-15.
    #[inline]
    fn compare_store_low16(&self, word: &Self::Word, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        self.compare_exchange_low16(word, current, new, order, Ordering::Relaxed)
            .map(drop)
    }
    /// Returns when each compare-store that another CPU has begun has stored, and this CPU sees it, or will compare again,
    /// and see what this CPU wrote before. False: there are none, because compare-stores are exchanges.
    #[inline]
    fn settle(&self) -> bool {
        false
    }
    /// Adds, wrapping; returns the value before.
    fn fetch_add(&self, word: &Self::Word, value: u32, order: Ordering) -> u32;
    /// Adds to bits 16-31, wrapping. Returns the value before, but bits 0-15 may be newer: as they were then, or at any time
    /// until this returns. Both were loaded with `order`.
    #[inline]
    fn fetch_add_high16(&self, word: &Self::Word, value: u16, order: Ordering) -> u32 {
        self.fetch_add(word, u32::from(value) << 16, order)
    }
    /// Sets bits; returns the value before.
    fn fetch_or(&self, word: &Self::Word, bits: u32, order: Ordering) -> u32;
    /// Keeps only `bits`; returns the value before.
    fn fetch_and(&self, word: &Self::Word, bits: u32, order: Ordering) -> u32;

    /// Loads an address word.
    fn load_address(&self, word: &Self::Address, order: Ordering) -> usize;
    /// Stores to an address word.
    fn store_address(&self, word: &Self::Address, value: usize, order: Ordering);
    /// [`Platform::compare_exchange`] on an address word.
    fn compare_exchange_address(
        &self,
        word: &Self::Address,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize>;

    /// A memory fence.
    fn fence(&self, order: Ordering);

    /// One PAUSE that waits for nothing in particular (back-off).
    fn relax(&self);

    /// Waits until `until` accepts the value of `word`, for at most `budget` iterations: **the only way a lock waits**.
    ///
    /// Returns the accepted value, loaded with `order`, or as `Err` the last value seen. `until` must depend on nothing
    /// but its argument: virtual time skips the spin and calls it only when the word is written. Interrupts that are
    /// enabled are taken while waiting.
    fn wait_until(
        &self,
        word: &Self::Word,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        spin_until(self, word, budget, order, until)
    }

    /// Counts `event` of a lock that has no [`Recorder`](crate::Recorder): the native ones. A platform may forward it to its recorder.
    #[inline(always)]
    fn count(&self, _event: Event) {}

    /// Tracepoint: the caller has found the lock taken and begins to wait for it. In arrival order where the lock has one.
    #[inline(always)]
    fn contention_begin(&self, _lock: &Self::Word) {}
    /// Tracepoint: the wait that [`Platform::contention_begin`] announced is over; the caller holds the lock.
    #[inline(always)]
    fn contention_end(&self, _lock: &Self::Word) {}
}

/// Load, compare, PAUSE: what [`Platform::wait_until`] is by default.
#[inline]
pub(crate) fn spin_until<P: Platform + ?Sized>(
    cpu: &P,
    word: &P::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    let mut spins = 0;
    loop {
        let value = cpu.load(word, order);
        if until(value) {
            return Ok(value);
        }
        if budget != Budget::UNBOUNDED {
            if spins == budget.0 {
                return Err(value);
            }
            spins += 1;
        }
        cpu.relax();
    }
}

/// Waits for as long as it takes; returns the accepted value.
#[inline]
#[track_caller]
pub(crate) fn wait_for<P: Platform>(cpu: &P, word: &P::Word, order: Ordering, until: impl Fn(u32) -> bool) -> u32 {
    match cpu.wait_until(word, Budget::UNBOUNDED, order, until) {
        Ok(accepted) => accepted,
        Err(last) => panic!("an unbounded wait has given up at {last:#x}"),
    }
}

/// A CPU whose interrupts a lock can mask.
///
/// # Safety
/// Between [`save`](Interrupts::irq_save) and the matching [`restore`](Interrupts::irq_restore) no interrupt handler may
/// run on this CPU.
pub unsafe trait Interrupts: Platform {
    /// Whether interrupts were enabled; true means they were.
    fn irq_save(&self) -> bool;
    /// Restores what [`Interrupts::irq_save`] returned.
    fn irq_restore(&self, enabled: bool);
    /// Whether the caller is a non-maskable interrupt's handler, which must not halt.
    fn in_nmi(&self) -> bool;
}
