//! Shared memory words in virtual time: a value, and the cache line that it lives on.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use holdfast_locks::{Line, Word};
use holdfast_machine::LineId;

use crate::core::engine::Engine;

/// A shared word. It gets a cache line when a run first uses it, or another word of the same line, so that lines are
/// numbered in the order of the history and not by addresses.
#[derive(Debug)]
pub struct Shared<T: Copy> {
    value: Cell<T>,
    /// The run that placed it and the line that it got, in the upper and lower half. Runs are numbered from 1.
    place: Cell<u64>,
    /// The words that lie on its line have the same number. 0: the word has a line of its own.
    group: Cell<u32>,
}

/// The next group's number. Only their being different matters, so histories do not depend on it.
static NEXT_GROUP: AtomicU32 = AtomicU32::new(1);

/// A shared 32-bit word.
pub type SimWord = Shared<u32>;
/// A shared word that holds a lock's key.
pub type SimAddress = Shared<usize>;

impl<T: Copy> Word<T> for Shared<T> {
    fn new(value: T) -> Self {
        Shared {
            value: Cell::new(value),
            place: Cell::new(0),
            group: Cell::new(0),
        }
    }

    fn line(&self) -> Line {
        if self.group.get() == 0 {
            self.group.set(NEXT_GROUP.fetch_add(1, Ordering::Relaxed));
        }
        Line(self.group.get())
    }

    fn place(&self, line: Line) {
        self.group.set(line.0);
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

    /// Its line in this run.
    #[inline(always)]
    pub fn line_in(&self, engine: &mut Engine) -> LineId {
        let place = self.place.get();
        if (place >> 32) as u32 == engine.run {
            LineId(place as u32)
        } else {
            self.find_place(engine)
        }
    }

    #[cold]
    fn find_place(&self, engine: &mut Engine) -> LineId {
        let line = engine.line_of_group(self.group.get());
        self.place.set(u64::from(engine.run) << 32 | u64::from(line.0));
        line
    }
}
