//! Shared words of the modeled memory.

use std::cell::Cell;
use std::fmt;

use holdfast_locks::Word;

use crate::checker::{Atomic, Checker};

thread_local! {
    /// The number of words that this execution has made. All threads of an execution run on one thread of the host.
    static WORDS: Cell<u32> = const { Cell::new(0) };
}

/// A word, numbered in the order of creation. The number is the word's key: addresses differ between executions, and so
/// would the behavior of a lock that derives something from them.
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

    /// Frees the word. A later access, or one that is not ordered before this call, fails the execution.
    pub fn free(&self) {
        self.atomic.free();
    }
}

/// Restarts the numbers of words at 1, for a new execution.
pub(crate) fn restart_numbers() {
    WORDS.set(0);
}

impl<C: Checker> Word<u32> for ModelWord<C> {
    fn new(value: u32) -> Self {
        Self::make(value)
    }
}

impl<C: Checker> Word<usize> for ModelWord<C> {
    /// Makes a word that holds a key. Keys are small numbers here, so they fit 32 bits.
    fn new(value: usize) -> Self {
        Self::make(u32::try_from(value).expect("a key fits 32 bits"))
    }
}

impl<C: Checker> fmt::Debug for ModelWord<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {}", self.number)
    }
}
