//! The shared words of this platform.

use holdfast_locks::Word;

/// A 32-bit word that CPUs share.
#[derive(Debug)]
#[repr(transparent)]
pub struct KvmWord(pub(crate) holdfast_words::Word);

/// A pointer-sized word that CPUs share.
#[derive(Debug)]
#[repr(transparent)]
pub struct KvmAddress(pub(crate) holdfast_words::Address);

impl KvmWord {
    /// Returns a word with value 0.
    pub(crate) const fn zero() -> KvmWord {
        KvmWord(holdfast_words::Word::new(0))
    }
}

impl Word<u32> for KvmWord {
    fn new(value: u32) -> Self {
        KvmWord(holdfast_words::Word::new(value))
    }
}

impl Word<usize> for KvmAddress {
    fn new(value: usize) -> Self {
        KvmAddress(holdfast_words::Address::new(value))
    }
}
