//! A queued reader-writer lock whose kind of queue is chosen at run time.

use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::{Platform, Word};
use crate::cpu::queue::Nodes;
use crate::rw::qrwlock::{Qrwlock, Wish};
use crate::spin::kind::{LockKind, match_kind, with_algorithm};

/// A [`Qrwlock`] whose queue's kind is an argument of each call: a kernel chooses it once, at boot.
///
/// As in Linux, the head of the queue spins until it has the lock, also in guests. Waiters behind it wait as the kind
/// does. All calls for one lock must be given the same [`LockKind`], or waiters may overtake each other; readers and
/// writers exclude each other in any case.
#[derive(Debug)]
pub struct BootRwlock<W>(Qrwlock<W, ()>);

impl<W> BootRwlock<W> {
    /// Makes an unlocked lock.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        BootRwlock(Qrwlock::new())
    }

    /// Returns the word of the state, by which tracepoints name a lock. The caller must not write it.
    pub fn word(&self) -> &W {
        self.0.word()
    }

    /// Waits until this CPU holds the lock together with other readers.
    ///
    /// # Panics
    /// If 32767 readers hold the lock.
    #[inline]
    pub fn lock_shared<P>(&self, kind: LockKind, cpu: &P)
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        let queue = |wish| self.queue(kind, cpu, wish);
        self.0.lock_shared_with(cpu, queue);
    }

    fn queue<P>(&self, kind: LockKind, cpu: &P, wish: Wish)
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(
            kind,
            L => self.0.queue::<P, L>(cpu, wish, false, || ()),
            lock => {
                let operations = lock.on::<P>();
                self.0.queue_by(cpu, wish, false, || (), (operations.lock, operations.unlock));
            }
        );
    }

    /// Releases the lock, which this CPU must hold as a reader.
    #[inline]
    pub fn unlock_shared<P: Paravirt<Word = W>>(&self, cpu: &P) {
        self.0.unlock_shared(cpu);
    }

    /// Waits until this CPU alone holds the lock.
    #[inline]
    pub fn lock_exclusive<P>(&self, kind: LockKind, cpu: &P)
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        let queue = |wish| self.queue(kind, cpu, wish);
        self.0.lock_exclusive_with(cpu, queue);
    }

    /// Releases the lock, which this CPU must hold as the writer.
    #[inline]
    pub fn unlock_exclusive<P: Paravirt<Word = W>>(&self, cpu: &P) {
        self.0.unlock_exclusive(cpu);
    }
}

impl<W: Word<u32>> Default for BootRwlock<W> {
    fn default() -> Self {
        Self::new()
    }
}
