//! Where CPUs announce themselves as readers: lines of memory that few CPUs share, and the trait of a CPU with such a
//! line.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::{Platform, Word};

/// Places on one cache line.
const PER_LINE: usize = 8;

/// A cache line of places for the announcements of readers. Locks are spread over the places of a line, CPUs over
/// lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReaderLine<A>([A; PER_LINE]);

impl<A> ReaderLine<A> {
    /// Makes a line of places, which must be zero. Usable in a `static`.
    pub const fn from_places(places: [A; PER_LINE]) -> Self {
        ReaderLine(places)
    }

    /// Makes an empty line.
    pub fn new() -> Self
    where
        A: Word<usize>,
    {
        let places = [(); PER_LINE].map(|()| A::new(0));
        let line = places[0].line();
        places.iter().for_each(|place| place.place(line));
        ReaderLine(places)
    }

    /// Returns whether no reader has announced itself here. It must be so when no CPU holds or waits for a lock.
    pub fn is_empty<P: Platform<Address = A>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; a caller that knows the locks to be idle has synchronized with their last users.
        self.0.iter().all(|place| cpu.load_address(place, Relaxed) == 0)
    }

    /// Returns the place of the lock `key`.
    #[inline]
    pub(crate) fn place(&self, key: usize) -> &A {
        // Multiplicative (Fibonacci) hashing, whose upper bits are the well-mixed ones.
        let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PER_LINE.ilog2());
        &self.0[hash as usize]
    }
}

impl<A: Word<usize>> Default for ReaderLine<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// A CPU with a line on which it announces itself as a reader of a [`BiasedRwlock`](crate::BiasedRwlock).
///
/// # Safety
/// - Between the begin and the end of a read, [`own_line`](Readers::own_line) must not change.
/// - A CPU that calls [`reader_lines`](Readers::reader_lines) after a sequentially consistent fence must find the line
///   of each CPU that has called [`own_line`](Readers::own_line) before such a fence.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Readers: Paravirt {
    /// Returns the line of this CPU. Several may share a line.
    fn own_line(&self) -> &ReaderLine<Self::Address>;
    /// Returns all lines that are in use.
    fn reader_lines(&self) -> &[ReaderLine<Self::Address>];
    /// Returns whether this CPU, which reads a lock without a bias, biases it. A revocation looks at one place of each
    /// line in use. `true` once in some hundred or thousand calls makes that cost little, however often the lock is
    /// written.
    fn biases(&self) -> bool;
    /// Executes a sequentially consistent fence directly after a read-modify-write operation. A platform whose
    /// read-modify-write operations are such fences has nothing to do.
    #[inline]
    #[track_caller]
    fn fence_after_exchange(&self) {
        self.fence(SeqCst);
    }
}
