//! Shared words of the modelled memory.

use std::cell::Cell;
use std::fmt;

use holdfast_locks::Word;

use crate::checker::{Atomic, Checker};

thread_local! {
    /// How many words this execution has made. All threads of an execution are one thread of the host.
    static WORDS: Cell<u32> = const { Cell::new(0) };
}

/// A word, numbered in the order of creation. Its number is its key: addresses differ from execution to execution, and
/// what a lock derives from them would, too.
pub struct ModelWord<C: Checker> {
    pub(crate) atomic: C::Atomic,
    pub(crate) number: u32,
}

impl<C: Checker> ModelWord<C> {
    fn make(value: u32) -> Self {
        let number = WORDS.get() + 1;
        WORDS.set(number);
        ModelWord {
            atomic: C::Atomic::new(value),
            number,
        }
    }

    /// Ends the word's life: whatever touches it after, or was not ordered before, is a failure.
    pub fn free(&self) {
        self.atomic.free();
    }
}

/// Numbers words from 1 again: a new execution begins.
pub(crate) fn restart_numbers() {
    WORDS.set(0);
}

impl<C: Checker> Word<u32> for ModelWord<C> {
    fn new(value: u32) -> Self {
        Self::make(value)
    }
}

impl<C: Checker> Word<usize> for ModelWord<C> {
    /// Keys are small numbers here, so that an address fits.
    fn new(value: usize) -> Self {
        Self::make(u32::try_from(value).expect("a key fits 32 bits"))
    }
}

impl<C: Checker> fmt::Debug for ModelWord<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {}", self.number)
    }
}
