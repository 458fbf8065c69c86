//! Shared memory words in virtual time: a value, and its cache line.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use holdfast_locks::{Line, Word};
use holdfast_machine::LineId;

use crate::memory::lines::Memory;

/// A shared word. A run gives it a cache line when the run first uses the word or another word of the same line. So
/// lines are numbered in the order of the history and not by addresses.
#[derive(Debug)]
pub struct Shared<T: Copy> {
    value: Cell<T>,
    /// The run that placed the word (upper half) and the line that it got (lower half). Runs are numbered from 1.
    place: Cell<u64>,
    /// All words of one line have the same number here. With 0 the word has a line of its own.
    group: Cell<u32>,
}

/// The next group's number. It matters only that groups have different numbers, so histories do not depend on them.
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
    /// The word's value.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.value.get()
    }

    /// Changes the word's value.
    #[inline(always)]
    pub fn set(&self, value: T) {
        self.value.set(value);
    }

    /// The word's line in the run of `memory`.
    #[inline(always)]
    pub fn line_in(&self, memory: &mut Memory) -> LineId {
        let place = self.place.get();
        if (place >> 32) as u32 == memory.run {
            LineId(place as u32)
        } else {
            self.find_place(memory)
        }
    }

    #[cold]
    fn find_place(&self, memory: &mut Memory) -> LineId {
        let line = memory.line_of_group(self.group.get());
        self.place.set(u64::from(memory.run) << 32 | u64::from(line.0));
        line
    }
}
