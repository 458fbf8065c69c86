//! Shared memory words in virtual time: a value, and the cache line that it lives on.

use core::cell::Cell;

use holdfast_locks::Word;
use holdfast_machine::LineId;

use crate::engine::Engine;

const UNPLACED: u32 = u32::MAX;

/// A shared word. It gets a cache line of its own when it is first used, so that lines are numbered in the order of the
/// history and not by addresses.
#[derive(Debug)]
pub struct Shared<T: Copy> {
    value: Cell<T>,
    line: Cell<u32>,
}

/// A shared 32-bit word.
pub type SimWord = Shared<u32>;
/// A shared word that holds a lock's key.
pub type SimAddress = Shared<usize>;

impl<T: Copy> Word<T> for Shared<T> {
    fn new(value: T) -> Self {
        Shared { value: Cell::new(value), line: Cell::new(UNPLACED) }
    }
}

impl<T: Copy> Shared<T> {
    /// Its value.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.value.get()
    }

    /// Changes its value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        self.value.set(value);
    }

    /// Its line.
    #[inline(always)]
    pub fn line(&self, engine: &mut Engine) -> LineId {
        match self.line.get() {
            UNPLACED => self.place(engine),
            line => LineId(line),
        }
    }

    #[cold]
    fn place(&self, engine: &mut Engine) -> LineId {
        let line = engine.add_line();
        self.line.set(line.0);
        line
    }
}
