//! What a parked flow waits for. Other flows evaluate it in its place.

#![expect(
    unsafe_code,
    reason = "a parked flow's predicate and word are read through pointers into its stack"
)]

use crate::memory::word::SimWord;

/// The word that a parked flow waits on, and the predicate that ends its wait.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    word: *const SimWord,
    until: *const dyn Fn(u32) -> bool,
}

impl Probe {
    /// A probe of `word` with the predicate `until`.
    ///
    /// # Safety
    /// Both must stay where they are until the flow that waits continues, and the probe must not be used after that.
    pub unsafe fn new(word: &SimWord, until: &dyn Fn(u32) -> bool) -> Probe {
        // SAFETY: only the lifetime changes; the caller vouches for it.
        let until: &'static (dyn Fn(u32) -> bool + 'static) = unsafe { std::mem::transmute(until) };
        Probe { word, until }
    }

    /// Returns the word's value, and whether it ends the wait.
    #[inline]
    pub fn look(&self) -> (u32, bool) {
        // SAFETY: a probe exists while its flow is parked (`new`), and the flow keeps both alive on its stack.
        let value = unsafe { &*self.word }.get();
        // SAFETY: as above.
        let accepted = unsafe { &*self.until }(value);
        (value, accepted)
    }
}
