//! Queued reader-writer lock (Linux: `kernel/locking/qrwlock.c`), whose head of the queue may halt.
//!
//! ```text
//!  31            16 15              2    1        0
//! +----------------+----------------+---------+--------+
//! | readers        | head's CPU + 1 | blocked | writer |
//! +----------------+----------------+---------+--------+
//! ```
//!
//! CPUs that cannot have the lock at once queue for a second word, a lock of kind `Q`. So one CPU at a time, the
//! *head*, waits on the state, and both readers and writers are served in the order of that queue.
//!
//! - **Exclusion**: the writer bit is set only by an exchange of a state without writer and readers. A reader that
//!   finds the writer bit when it adds itself subtracts itself again and has not held the lock.
//! - **Bounded overtaking**: once the head has set the blocked bit, no other CPU gets the lock: newcomers queue. The
//!   head clears the bit when it takes the lock. In between it waits for the present holders only. Where the head
//!   competes on equal terms for a while ([`Sharing::head`](crate::Sharing::head)), it does so against writers only,
//!   twice, and sets the bit then; an overtaking writer sets it for a head that does not run ([`Paravirt::overtook`]).
//!   Against readers it sets the bit at once, because readers may overlap without end.
//! - **No lost kick**: the head writes its number into the state by an exchange that finds the lock taken. So the CPU
//!   that then releases the lock finds the number in the same word, by the same instruction.
//! - **Word untouched after release**: the instruction that releases also returns whom to kick.
//!
//! Linux's reader at the head counts itself as a reader while it waits. Here it sets the blocked bit, as a writer does:
//! then it holds nothing if it vanishes, as the threads of a process that forks do.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::layout::{Layout, Narrow};
use crate::cpu::paravirt::{Paravirt, halt_while};
use crate::cpu::platform::{Budget, CpuId, Word};
use crate::cpu::steps::{AllSteps, Steps, unless_omitted};
use crate::raw::{RawLock, RawRwlock, TryRwlock, forward_rwlock, forward_try_rwlock};
use crate::spin::backoff::wait_backing_off;

const WRITER: u32 = 1;
const BLOCKED: u32 = 1 << 1;
const HEAD_SHIFT: u32 = 2;
const HEAD: u32 = 0xfffc;
const READER: u32 = 1 << 16;
const READERS: u32 = 0xffff_0000;
/// The most readers that hold a [`Qrwlock`] at the same time.
pub const READERS_MAX: u32 = TOO_MANY / READER - 1;

/// Set if there are too many readers. As many CPUs again may be about to find that out before the count wraps.
const TOO_MANY: u32 = 1 << 31;

const _: () = assert!(Narrow::CPUS_MAX << HEAD_SHIFT == HEAD);

/// The number of waits in which the head competes on equal terms: one before its first halt and one after it.
const EQUAL_WAITS: u32 = 2;

/// What a CPU wants of the lock.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// The bits that must be clear.
    obstacles: u32,
    /// What to add to the state.
    gain: u32,
}

const SHARED: Wish = Wish {
    obstacles: WRITER | TOO_MANY,
    gain: READER,
};
const EXCLUSIVE: Wish = Wish {
    obstacles: WRITER | READERS,
    gain: WRITER,
};

/// A reader-writer lock of two words, for up to 32767 readers at a time. `Q` is the kind of the queue's lock, `S` the
/// steps that the lock takes.
///
/// A reader that takes the lock again while a writer waits waits forever.
///
/// ```
/// use holdfast_locks::{Paravirt, Nodes, Qrwlock, Qspin};
///
/// fn read<P: Nodes + Paravirt>(cpu: &P, lock: &Qrwlock<P::Word, Qspin>) {
///     lock.lock_shared(cpu);
///     lock.unlock_shared(cpu);
/// }
/// ```
pub struct Qrwlock<W, Q, S = AllSteps> {
    state: W,
    queue: W,
    algorithm: PhantomData<fn() -> (Q, S)>,
}

impl<W, Q, S> Qrwlock<W, Q, S> {
    /// Makes a lock of two words, which must be zero. Usable in a `static`.
    pub const fn from_words(state: W, queue: W) -> Self {
        Qrwlock {
            state,
            queue,
            algorithm: PhantomData,
        }
    }

    /// Makes an unlocked lock.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        Self::from_words(W::new(0), W::new(0))
    }

    /// Returns the word of the state. The caller must not write it.
    pub fn word(&self) -> &W {
        &self.state
    }

    /// Returns whether the head of the queue blocks newcomers.
    pub(crate) fn is_blocked<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; ordered by the caller's fence.
        cpu.load(&self.state, Relaxed) & BLOCKED != 0
    }

    /// Returns the state without its writer.
    pub(crate) fn without_writer(state: u32) -> u32 {
        state & !WRITER
    }
}

impl<W: Word<u32>, Q, S> Default for Qrwlock<W, Q, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, Q, S: Steps> Qrwlock<W, Q, S> {
    /// Waits until this CPU holds the lock together with other readers.
    ///
    /// # Panics
    /// If 32767 readers hold the lock.
    #[inline]
    pub fn lock_shared<P>(&self, cpu: &P)
    where
        P: Paravirt<Word = W>,
        Q: RawLock<P>,
    {
        self.lock_shared_with(cpu, |wish| self.queue::<P, Q>(cpu, wish, true, || ()));
    }

    /// Waits until this CPU holds the lock together with other readers, by `queue` if it must queue.
    #[inline]
    pub(super) fn lock_shared_with<P: Paravirt<Word = W>>(&self, cpu: &P, queue: impl FnOnce(Wish)) {
        // ORDERING: Acquire; pairs with the Release in `unlock_exclusive` and `downgrade`.
        let before = cpu.fetch_add(&self.state, READER, unless_omitted(S::LOCK_ACQUIRE, Acquire));
        // A head that does not block newcomers is no obstacle.
        if before & (SHARED.obstacles | BLOCKED) != 0 {
            self.lock_shared_slow(cpu, before, queue);
        }
    }

    #[cold]
    fn lock_shared_slow<P: Paravirt<Word = W>>(&self, cpu: &P, before: u32, queue: impl FnOnce(Wish)) {
        self.unlock_shared(cpu);
        let key = cpu.key(&self.state);
        assert!(
            before & TOO_MANY == 0,
            "cannot read the lock at {key:#x}: 32767 readers hold it"
        );
        let sharing = cpu.sharing();
        if !sharing.head_competes() || !self.steal_shared(cpu, sharing.newcomer) {
            queue(SHARED);
        }
    }

    /// Takes the lock together with other readers if that needs no waiting. Returns whether this CPU now holds it.
    #[inline]
    pub fn try_lock_shared<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; the exchange acquires.
        let mut seen = cpu.load(&self.state, Relaxed);
        while seen & (SHARED.obstacles | BLOCKED) == 0 {
            // ORDERING: Acquire; as in `lock_shared`. Relaxed on failure: nothing was taken.
            match cpu.compare_exchange(&self.state, seen, seen + READER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Releases the lock, which this CPU must hold as a reader.
    #[inline]
    pub fn unlock_shared<P: Paravirt<Word = W>>(&self, cpu: &P) {
        // ORDERING: Release; pairs with the Acquire of the next writer: it must not change what this reader reads.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        let before = cpu.fetch_add(&self.state, READER.wrapping_neg(), release);
        if before & HEAD != 0 && before & (READERS | WRITER) == READER {
            kick::<P, S>(cpu, before);
        }
    }

    /// Waits until this CPU alone holds the lock.
    #[inline]
    pub fn lock_exclusive<P>(&self, cpu: &P)
    where
        P: Paravirt<Word = W>,
        Q: RawLock<P>,
    {
        self.lock_exclusive_then(cpu, || ());
    }

    /// [`lock_exclusive`](Self::lock_exclusive), which calls `blocked` each time after it has blocked newcomers.
    #[inline]
    pub(crate) fn lock_exclusive_then<P>(&self, cpu: &P, blocked: impl Fn())
    where
        P: Paravirt<Word = W>,
        Q: RawLock<P>,
    {
        self.lock_exclusive_with(cpu, |wish| self.queue::<P, Q>(cpu, wish, true, blocked));
    }

    /// Waits until this CPU alone holds the lock, by `queue` if it must queue.
    #[inline]
    pub(super) fn lock_exclusive_with<P: Paravirt<Word = W>>(&self, cpu: &P, queue: impl FnOnce(Wish)) {
        let acquire = unless_omitted(S::LOCK_ACQUIRE, Acquire);
        // ORDERING: Acquire; pairs with the Release in `unlock_exclusive` and `unlock_shared`. Relaxed on failure:
        // nothing was taken.
        if cpu.compare_exchange(&self.state, 0, WRITER, acquire, Relaxed).is_err() {
            self.lock_exclusive_slow(cpu, queue);
        }
    }

    #[cold]
    fn lock_exclusive_slow<P: Paravirt<Word = W>>(&self, cpu: &P, queue: impl FnOnce(Wish)) {
        let sharing = cpu.sharing();
        if !sharing.head_competes() || !self.steal_exclusive(cpu, sharing.newcomer) {
            queue(EXCLUSIVE);
        }
    }

    /// Takes the lock alone if that needs no waiting. Returns whether this CPU now holds it.
    #[inline]
    pub fn try_lock_exclusive<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; the exchange acquires.
        let mut seen = cpu.load(&self.state, Relaxed);
        while seen & (EXCLUSIVE.obstacles | BLOCKED) == 0 {
            // ORDERING: Acquire; as in `lock_exclusive`. Relaxed on failure: nothing was taken.
            match cpu.compare_exchange(&self.state, seen, seen + WRITER, Acquire, Relaxed) {
                Ok(_) => {
                    if seen & HEAD != 0 && cpu.overtook() {
                        // There is a head, and it cannot leave while this CPU holds the lock: it will clear the bit.
                        // ORDERING: Relaxed; the bit only keeps CPUs from taking the lock.
                        cpu.fetch_or(&self.state, BLOCKED, Relaxed);
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Releases the lock, which this CPU must hold as the writer.
    #[inline]
    pub fn unlock_exclusive<P: Paravirt<Word = W>>(&self, cpu: &P) {
        // ORDERING: Release; pairs with the Acquire of the next holders.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        let before = cpu.fetch_add(&self.state, WRITER.wrapping_neg(), release);
        if before & HEAD != 0 {
            kick::<P, S>(cpu, before);
        }
    }

    /// Makes the writer, which this CPU must be, a reader: no other writer gets the lock in between.
    #[inline]
    pub fn downgrade<P: Paravirt<Word = W>>(&self, cpu: &P) {
        // ORDERING: Release; pairs with the Acquire of readers that come now.
        let before = cpu.fetch_add(&self.state, READER - WRITER, Release);
        if before & HEAD != 0 {
            // The head may be a reader.
            kick::<P, S>(cpu, before);
        }
    }

    /// Takes the lock together with other readers, without ever queueing: waits for at most `patience` iterations.
    /// Returns whether this CPU now holds the lock.
    pub fn steal_shared<P: Paravirt<Word = W>>(&self, cpu: &P, patience: Budget) -> bool {
        // ORDERING: Relaxed; only a hint when to try.
        let _ = wait_backing_off(cpu, &self.state, patience, Relaxed, |now| {
            now & (SHARED.obstacles | BLOCKED) == 0
        });
        self.try_lock_shared(cpu)
    }

    /// Takes the lock alone, without ever queueing: waits for at most `patience` iterations. Returns whether this CPU
    /// now holds the lock.
    pub fn steal_exclusive<P: Paravirt<Word = W>>(&self, cpu: &P, patience: Budget) -> bool {
        // ORDERING: Relaxed; only a hint when to try.
        let _ = wait_backing_off(cpu, &self.state, patience, Relaxed, |now| {
            now & (EXCLUSIVE.obstacles | BLOCKED) == 0
        });
        self.try_lock_exclusive(cpu)
    }

    /// Returns whether a CPU held the lock at some moment during the call.
    pub fn is_locked<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        cpu.load(&self.state, Relaxed) & (WRITER | READERS) != 0
    }

    /// Returns whether a writer held the lock at some moment during the call.
    pub fn is_locked_exclusive<P: Paravirt<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; as in `is_locked`.
        cpu.load(&self.state, Relaxed) & WRITER != 0
    }

    /// Queues and waits until `wish` is granted. `K` is the kind of the queue. The head halts after a while if `halts`,
    /// and calls `blocked` each time after it has blocked newcomers.
    pub(super) fn queue<P, K>(&self, cpu: &P, wish: Wish, halts: bool, blocked: impl Fn())
    where
        P: Paravirt<Word = W>,
        K: RawLock<P>,
    {
        self.queue_by(cpu, wish, halts, blocked, (K::lock, K::unlock));
    }

    /// Does the same with the operations of the queue's lock.
    #[inline]
    pub(super) fn queue_by<P: Paravirt<Word = W>>(
        &self,
        cpu: &P,
        wish: Wish,
        halts: bool,
        blocked: impl Fn(),
        (lock, unlock): (impl FnOnce(&P, &W), impl FnOnce(&P, &W)),
    ) {
        // A CPU that has vanished leaves the queue to the next one, and blocks no newcomers.
        cpu.wait_begins(&self.queue, |_| 0);
        cpu.wait_begins(&self.state, |state| state & !(BLOCKED | HEAD));
        lock(cpu, &self.queue);
        cpu.heads(&self.queue, true);
        cpu.contention_begin(&self.state);
        self.wait_at_head(cpu, wish, halts, blocked);
        cpu.contention_end(&self.state);
        cpu.heads(&self.queue, false);
        cpu.wait_ends();
        unlock(cpu, &self.queue);
        cpu.wait_ends();
    }

    fn wait_at_head<P: Paravirt<Word = W>>(&self, cpu: &P, wish: Wish, halts: bool, blocked: impl Fn()) {
        let shares = cpu.sharing().head;
        let mut waits = if shares.0 == 0 { EQUAL_WAITS } else { 0 };
        loop {
            let equal = waits < EQUAL_WAITS;
            if !equal && S::BLOCK {
                // ORDERING: Relaxed; the bit only keeps CPUs from taking the lock.
                cpu.fetch_or(&self.state, BLOCKED, Relaxed);
                blocked();
            }
            let budget = match (equal, halts) {
                (true, _) => shares,
                (false, true) => cpu.spin_threshold(),
                (false, false) => Budget::UNBOUNDED,
            };
            match self.compete(cpu, wish, budget) {
                Ok(()) => return,
                // Only readers hold the lock.
                Err(seen) if equal && seen & WRITER == 0 => waits = EQUAL_WAITS,
                Err(_) if equal && waits > 0 => {
                    cpu.nap();
                    waits += 1;
                }
                Err(_) => {
                    self.park(cpu, wish);
                    waits += 1;
                }
            }
        }
    }

    /// Spins for the lock at the head of the queue until this CPU holds it. Returns the last state seen as `Err` if the
    /// budget is spent.
    fn compete<P: Paravirt<Word = W>>(&self, cpu: &P, wish: Wish, budget: Budget) -> Result<(), u32> {
        let mut left = budget;
        loop {
            // ORDERING: Relaxed; the exchange acquires.
            let seen = cpu.wait_until(&self.state, left, Relaxed, |now| now & wish.obstacles == 0)?;
            // A writer may overtake, and a reader may add itself and subtract itself again.
            if self.try_take_as_head(cpu, wish) {
                return Ok(());
            }
            // Each lost race counts as an iteration.
            if left != Budget::UNBOUNDED {
                left.0 = left.0.checked_sub(1).ok_or(seen)?;
            }
        }
    }

    /// Takes the lock at the head of the queue. Returns whether this CPU now holds it.
    fn try_take_as_head<P: Paravirt<Word = W>>(&self, cpu: &P, wish: Wish) -> bool {
        // ORDERING: Relaxed; the exchange acquires.
        let mut seen = cpu.load(&self.state, Relaxed);
        while seen & wish.obstacles == 0 {
            let new = (seen & !(BLOCKED | HEAD)) + wish.gain;
            // ORDERING: Acquire; pairs with the Release of the unlocks. Relaxed on failure: nothing was taken.
            let acquire = unless_omitted(S::LOCK_ACQUIRE, Acquire);
            match cpu.compare_exchange(&self.state, seen, new, acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Halts the head of the queue until the lock may have become free: **No lost kick**.
    fn park<P: Paravirt<Word = W>>(&self, cpu: &P, wish: Wish) {
        if cpu.in_nmi() {
            return;
        }
        let CpuId(number) = cpu.cpu();
        assert!(
            number < Narrow::CPUS_MAX,
            "CPU {number} has no room in the lock's state"
        );
        let me = (number + 1) << HEAD_SHIFT;
        let waits = |state: u32| !S::RECHECK || state & wish.obstacles != 0;
        // ORDERING: Relaxed; the exchange looks again.
        let mut seen = cpu.load(&self.state, Relaxed);
        loop {
            if !waits(seen) {
                return;
            }
            // A number that is already there belongs to a head that has vanished.
            // ORDERING: Relaxed, both; only the order of changes of this one word matters.
            match cpu.compare_exchange(&self.state, seen, seen & !HEAD | me, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // ORDERING: Relaxed; the CPU that changes it will also kick.
        halt_while::<P, S>(cpu, || waits(cpu.load(&self.state, Relaxed)));
        // ORDERING: Relaxed; a CPU that still sees the number sends a needless kick.
        cpu.fetch_and(&self.state, !HEAD, Relaxed);
    }
}

impl<P: Paravirt, Q: RawLock<P>, S: Steps> RawRwlock<P> for Qrwlock<P::Word, Q, S> {
    forward_rwlock!(Qrwlock);
}

impl<P: Paravirt, Q: RawLock<P>, S: Steps> TryRwlock<P> for Qrwlock<P::Word, Q, S> {
    forward_try_rwlock!(Qrwlock);
}

impl<W, Q, S> fmt::Debug for Qrwlock<W, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qrwlock").finish_non_exhaustive()
    }
}

/// Kicks the head of the queue that `state` names.
#[cold]
fn kick<P: Paravirt, S: Steps>(cpu: &P, state: u32) {
    if S::KICK {
        cpu.kick(CpuId(((state & HEAD) >> HEAD_SHIFT) - 1));
    }
}
