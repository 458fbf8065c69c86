//! What a parked flow waits for, to be looked at by others in its stead.

#![expect(
    unsafe_code,
    reason = "a parked flow's predicate and word are looked at through pointers into its stack"
)]

use crate::memory::word::SimWord;

/// The word that a parked flow waits on, and the predicate that ends its wait.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    word: *const SimWord,
    until: *const dyn Fn(u32) -> bool,
}

impl Probe {
    /// # Safety
    /// Both must stay where they are until the flow that waits continues, and the probe must not be used after that.
    pub unsafe fn new(word: &SimWord, until: &dyn Fn(u32) -> bool) -> Probe {
        // SAFETY: only the lifetime changes; the caller vouches for it.
        let until: &'static (dyn Fn(u32) -> bool + 'static) = unsafe { std::mem::transmute(until) };
        Probe { word, until }
    }

    /// The word's value, and whether it ends the wait.
    #[inline]
    pub fn look(&self) -> (u32, bool) {
        // SAFETY: a probe exists while its flow is parked (`new`), and the flow keeps both alive on its stack.
        let value = unsafe { &*self.word }.get();
        // SAFETY: as above.
        let accepted = unsafe { &*self.until }(value);
        (value, accepted)
    }
}
