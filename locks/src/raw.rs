//! What a lock algorithm is: operations on one word.
//!
//! The word is all that is stored, so an algorithm is a type without values, such as [`Ticket`](crate::Ticket). What it
//! needs from its CPU is the bound of its implementation: [`Platform`], [`Nodes`](crate::Nodes),
//! [`Paravirt`](crate::Paravirt).

use crate::platform::Platform;

/// A spinlock's algorithm over one word of `P`; zero is free.
///
/// All operations on one word must use the same algorithm. They are safe to call: a word that is unlocked by a CPU that
/// does not hold it loses exclusion among those who use that word, no more. [`SpinLock`](crate::SpinLock) therefore
/// keeps its word to itself.
pub trait RawLock<P: Platform> {
    /// Waits until the caller holds the lock.
    fn lock(cpu: &P, word: &P::Word);
    /// Takes the lock if that needs no waiting.
    fn try_lock(cpu: &P, word: &P::Word) -> bool;
    /// Releases the lock, which the caller must hold. Never touches `word` after the store that releases it: another
    /// CPU may have freed its memory by then.
    fn unlock(cpu: &P, word: &P::Word);
    /// Whether somebody held the lock a moment ago.
    fn is_locked(cpu: &P, word: &P::Word) -> bool;
    /// Whether somebody waited for the lock a moment ago. Always false where the word does not tell.
    fn is_contended(cpu: &P, word: &P::Word) -> bool;
}
