//! What a lock needs from the CPU that executes it.
//!
//! Capabilities are traits. A lock that needs only atomic operations requires [`Platform`], a lock with queue nodes
//! [`Nodes`](crate::Nodes), and a lock that halts and kicks [`Paravirt`](crate::Paravirt). A plain ticket lock
//! therefore *cannot* kick.

#![expect(
    unsafe_code,
    reason = "exclusion rests on the implementations of these traits: they are unsafe to implement"
)]

use core::sync::atomic::Ordering;

use crate::cpu::stats::Event;
use crate::cpu::subword::{self, BYTE1, HIGH16, LOW8, LOW16};

/// The number of a CPU. Numbers are dense and start at 0; they are not APIC IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// The number of a simulated cache line, for words that are larger than the memory they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub u32);

/// A shared 32-bit or pointer-sized memory word that only a [`Platform`] can operate on.
pub trait Word<T> {
    /// Makes a word that holds `value`.
    fn new(value: T) -> Self;

    /// Returns this word's cache line, on which other words may be [placed](Word::place).
    ///
    /// Words in memory need neither method: the memory layout decides. The methods are for platforms whose words are
    /// larger than the 4 or 8 bytes that they stand for.
    #[inline]
    fn line(&self) -> Line {
        Line(0)
    }

    /// Places this word on `line`. Must be called before any operation on the word. At most one word of a line may be a
    /// lock.
    #[inline]
    fn place(&self, _line: Line) {}
}

/// The limit of a spin in [`Platform::wait_until`].
///
/// # Units
/// Iterations of load, compare, PAUSE. An iteration takes about 14 cycles before Skylake and about 145 cycles from
/// Skylake on (docs/spec/costs.md, "Atomics, PAUSE and locks").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub u32);

impl Budget {
    /// No limit: the wait ends only when the predicate holds.
    pub const UNBOUNDED: Budget = Budget(u32::MAX);
}

/// The CPU that executes the caller.
///
/// # Safety
/// Mutual exclusion rests on the implementation.
/// - Each operation must be atomic with respect to all others on the same word.
/// - Each operation must order at least as strongly as the [`Ordering`] it is given.
/// - Two values that can be in use at the same time must return different [`Platform::cpu`] numbers.
/// - A value must only be used on the CPU that it names.
pub unsafe trait Platform {
    /// A shared 32-bit word: a lock word, a queue link, a flag.
    type Word: Word<u32> + 'static;
    /// A shared word that can hold a lock's [`key`](Platform::key).
    type Address: Word<usize> + 'static;

    /// Returns this CPU's number.
    fn cpu(&self) -> CpuId;

    /// Returns what identifies the lock `word`: its address, or another stable number. Never 0.
    fn key(&self, word: &Self::Word) -> usize;

    /// Loads `word`.
    fn load(&self, word: &Self::Word, order: Ordering) -> u32;
    /// Loads bits 0-15.
    #[inline]
    fn load_low16(&self, word: &Self::Word, order: Ordering) -> u16 {
        self.load(word, order) as u16
    }
    /// Loads bits 8-15. It need not wait for a store to bits 0-7; see [`Platform::load_high16`].
    #[inline]
    fn load_byte1(&self, word: &Self::Word, order: Ordering) -> u8 {
        (self.load(word, order) >> 8) as u8
    }
    /// Loads bits 16-31.
    ///
    /// On a platform with machine code of its own this does not read the bytes of a store to bits 0-15 that is still
    /// under way, so it need not wait for that store.
    #[inline]
    fn load_high16(&self, word: &Self::Word, order: Ordering) -> u16 {
        (self.load(word, order) >> 16) as u16
    }
    /// Stores `value` to `word`.
    fn store(&self, word: &Self::Word, value: u32, order: Ordering);
    /// Stores to bits 0-7 and keeps the other bits, which other CPUs may be changing.
    ///
    /// Portable code must not mix access sizes on one word, so it needs a read-modify-write here. A platform with
    /// machine code of its own makes this a plain byte store.
    fn store_low8(&self, word: &Self::Word, value: u8, order: Ordering);
    /// Stores to bits 0-15 and keeps the other bits; see [`Platform::store_low8`].
    fn store_low16(&self, word: &Self::Word, value: u16, order: Ordering);
    /// Stores `value` and returns the previous value.
    fn swap(&self, word: &Self::Word, value: u32, order: Ordering) -> u32;
    /// Stores `new` if `word` holds `current`. Returns the previous value, as `Err` if it was not `current`. Never
    /// fails spuriously.
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
    /// The portable default is a loop over the whole word. Like the byte instruction, it fails only because of bits
    /// 0-7. A platform with machine code of its own replaces this default and the other sub-word defaults below.
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
    /// Stores to bits 8-15 and keeps the other bits; see [`Platform::store_low8`].
    #[inline]
    fn store_byte1(&self, word: &Self::Word, value: u8, order: Ordering) {
        subword::swap(self, word, BYTE1, u32::from(value) << 8, order);
    }
    /// Stores `new` to bits 0-7 if they hold `current`; otherwise returns the value found. It may overwrite a
    /// read-modify-write of the same bits that happens between its compare and its store, unless [`Platform::settle`]
    /// follows that one. Towards all other operations it is atomic.
    ///
    /// It is meant for an unlocker that sees no waiter. A waiter that has announced itself in the word must call
    /// [`Platform::settle`], then check whether its announcement is still there. The default is an atomic
    /// compare-exchange, which never overwrites.
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
    /// Waits for the compare-stores that other CPUs have begun. On return each of them either has stored, visibly to
    /// this CPU, or will compare again and see what this CPU wrote before.
    ///
    /// Returns `false` if there is nothing to wait for because compare-stores are exchanges.
    #[inline]
    fn settle(&self) -> bool {
        false
    }
    /// Returns whether [`Platform::settle`] cannot wait any more, so that a compare-store may still overwrite an
    /// announcement. Then the caller's next halt after each `settle` ends after a bounded time, and the caller looks
    /// again.
    #[inline(always)]
    fn is_unsettled(&self) -> bool {
        false
    }
    /// Adds, wrapping, and returns the previous value.
    fn fetch_add(&self, word: &Self::Word, value: u32, order: Ordering) -> u32;
    /// Adds to bits 16-31, wrapping, and returns the previous value. Its bits 0-15 may be newer than the addition: they
    /// are loaded at any time between the addition and the return. Both halves are loaded with `order`.
    #[inline]
    fn fetch_add_high16(&self, word: &Self::Word, value: u16, order: Ordering) -> u32 {
        self.fetch_add(word, u32::from(value) << 16, order)
    }
    /// Sets `bits` and returns the previous value.
    fn fetch_or(&self, word: &Self::Word, bits: u32, order: Ordering) -> u32;
    /// Clears all bits but `bits` and returns the previous value.
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

    /// Executes a memory fence.
    fn fence(&self, order: Ordering);

    /// Executes one PAUSE, to back off.
    fn relax(&self);

    /// Waits until `until` accepts the value of `word`, for at most `budget` iterations: **the only way a lock waits**.
    ///
    /// Returns the accepted value, loaded with `order`, or as `Err` the last value seen. `until` must depend only on
    /// its argument: virtual time skips the spin and calls `until` only when the word is written. If interrupts are
    /// enabled they are taken during the wait.
    fn wait_until(
        &self,
        word: &Self::Word,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        spin_until(self, word, budget, order, until)
    }

    /// Called before the caller leaves a trace of its wait in `word`, a word of a lock. (A ticket lock calls it just
    /// after the ticket is drawn.) `alone` maps the word to the word without waiters: held if it was held, otherwise
    /// free. Waits nest: a reader-writer lock calls it for both of its words, then queues.
    ///
    /// A platform whose CPUs may vanish needs it, such as the threads of a process that forks.
    #[inline(always)]
    fn wait_begins(&self, _word: &Self::Word, _alone: fn(u32) -> u32) {}
    /// Called after the wait that the latest [`Platform::wait_begins`] began has left no more trace in its word.
    #[inline(always)]
    fn wait_ends(&self) {}

    /// Counts an event of a native lock, which has no [`Recorder`](crate::Recorder). A platform may forward it to its
    /// recorder.
    #[inline(always)]
    fn count(&self, _event: Event) {}

    /// Tracepoint: the caller has found the lock taken and begins to wait for it. If the lock serves waiters in order
    /// of arrival, this is called in that order.
    #[inline(always)]
    fn contention_begin(&self, _lock: &Self::Word) {}
    /// Tracepoint: the caller is the head of the queue of a reader-writer lock from now on (`is_head`), or no longer.
    /// `queue` is the queue's word.
    #[inline(always)]
    fn heads(&self, _queue: &Self::Word, _is_head: bool) {}
    /// Tracepoint: the wait that began with [`Platform::contention_begin`] has ended, and the caller holds the lock.
    #[inline(always)]
    fn contention_end(&self, _lock: &Self::Word) {}
}

/// Repeats load, compare, PAUSE: the default of [`Platform::wait_until`].
#[inline]
pub(crate) fn spin_until<P: Platform + ?Sized>(
    cpu: &P,
    word: &P::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    look_until(cpu, word, budget, order, until, (1, 1))
}

/// Repeats load, compare, and some PAUSEs, for at most `budget` PAUSEs: `first` between the first two looks, then twice
/// as many each time, up to `most`.
#[inline]
pub(crate) fn look_until<P: Platform + ?Sized>(
    cpu: &P,
    word: &P::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
    (first, most): (u32, u32),
) -> Result<u32, u32> {
    let (mut left, mut pauses) = (budget.0, first);
    loop {
        let value = cpu.load(word, order);
        if until(value) {
            return Ok(value);
        }
        if left == 0 {
            return Err(value);
        }
        let now = pauses.min(left);
        (0..now).for_each(|_| cpu.relax());
        if budget != Budget::UNBOUNDED {
            left -= now;
        }
        pauses = (pauses * 2).min(most);
    }
}

/// Waits without limit and returns the accepted value.
///
/// # Panics
/// If the platform gives up.
#[inline]
#[track_caller]
pub fn wait_for<P: Platform>(cpu: &P, word: &P::Word, order: Ordering, until: impl Fn(u32) -> bool) -> u32 {
    match cpu.wait_until(word, Budget::UNBOUNDED, order, until) {
        Ok(accepted) => accepted,
        Err(last) => panic!("cannot wait without a limit: the platform gave up while the word was {last:#x}"),
    }
}

/// A CPU whose interrupts a lock can mask.
///
/// # Safety
/// No interrupt handler may run on this CPU between [`irq_save`](Interrupts::irq_save) and the matching
/// [`irq_restore`](Interrupts::irq_restore).
pub unsafe trait Interrupts: Platform {
    /// Masks interrupts. Returns whether they were enabled before.
    fn irq_save(&self) -> bool;
    /// Restores the state that [`Interrupts::irq_save`] returned.
    fn irq_restore(&self, enabled: bool);
    /// Returns whether the caller is a handler of a non-maskable interrupt, which must not halt.
    fn in_nmi(&self) -> bool;
}
