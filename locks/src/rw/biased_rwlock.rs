//! Reader bias: readers that do not write a common cache line (BRAVO: D. Dice and A. Kogan, "BRAVO - Biased Locking for
//! Reader-Writer Locks", USENIX ATC 2019).
//!
//! ```text
//!  31                               3    2     1    0
//! +----------------------------------+------+--------+
//! | writer's CPU + 1                 | left | plain, |
//! |                                  |      | biased,|
//! |                                  |      | revoked|
//! +----------------------------------+------+--------+
//! ```
//!
//! While a lock is *biased*, a reader writes the lock's key to a *place*, which it shares with few other CPUs, and not
//! the lock. A writer first takes the lock below, then *revokes* the bias, and waits until no place has the key. Now
//! and then a reader of the lock below biases it again ([`Readers::biases`]).
//!
//! - **Exclusion**: a reader looks at the bias again after its announcement, a writer looks at the places after it has
//!   revoked. Each has a full barrier in between. So the reader sees that the bias is gone and withdraws, or the writer
//!   sees the announcement and waits. Only a reader that holds the lock below biases it, so no writer holds it then.
//! - **A place is any reader's**: two readers of a lock may share a place. The second one takes the lock below. Each
//!   release clears the place if it has the key, otherwise it releases the lock below. So if they release in the other
//!   order, the first one's hold moves from the place to the lock below. Their number is right at any time.
//! - **No lost kick**: the writer writes its number to the bias, has a full barrier, and looks at the place. A reader
//!   clears its place, has a full barrier, and looks at the bias. So the writer sees the cleared place, or the reader
//!   sees the number, sets the bit *left*, which the writer looks for before it halts, and kicks.
//! - **Bounded overtaking**: a writer at the head of the queue blocks newcomers to the lock below, then suspends the
//!   bias (*revoked*, without a number). A reader biases the lock, then looks for such a writer and suspends the bias
//!   itself. Each has a full barrier in between. So readers that come later take the lock below, where they wait.
//!
//! A reader's release looks at the bias after it has cleared its place. So the memory of a lock may be freed when the
//! calls of its readers have returned, not before.
//!
//! A CPU that vanishes while it revokes, as the threads of a process that forks do, leaves the bias revoked. The next
//! writer looks at the places as if the lock were biased.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::cpu::paravirt::halt_while;
use crate::cpu::platform::{Budget, CpuId, Platform, Word};
use crate::cpu::steps::{AllSteps, Steps, unless_omitted};
use crate::raw::{RawLock, RawRwlock, TryRwlock, forward_rwlock, forward_try_rwlock};
use crate::rw::qrwlock::Qrwlock;
use crate::rw::readers::Readers;

const STATE: u32 = 0b11;
const PLAIN: u32 = 0;
const BIASED: u32 = 1;
const REVOKED: u32 = 2;
const LEFT: u32 = 1 << 2;
const SHIFT: u32 = 3;

/// A [`Qrwlock`] whose readers write no common cache line while there is no writer, for data that is hardly ever
/// written. `Q` is the kind of the queue's lock, `S` the steps of the bias.
///
/// A reader that takes the lock again while a writer waits waits forever.
pub struct BiasedRwlock<W, Q, S = AllSteps> {
    bias: W,
    lock: Qrwlock<W, Q>,
    steps: PhantomData<fn() -> S>,
}

impl<W, Q, S> BiasedRwlock<W, Q, S> {
    /// Makes a lock of three words, which must be zero. Usable in a `static`.
    pub const fn from_words(bias: W, state: W, queue: W) -> Self {
        BiasedRwlock {
            bias,
            lock: Qrwlock::from_words(state, queue),
            steps: PhantomData,
        }
    }

    /// Makes an unlocked lock.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        Self::from_words(W::new(0), W::new(0), W::new(0))
    }
}

impl<W: Word<u32>, Q, S> Default for BiasedRwlock<W, Q, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, Q, S: Steps> BiasedRwlock<W, Q, S> {
    /// Waits until this CPU holds the lock together with other readers.
    ///
    /// # Panics
    /// If 32767 readers hold the lock below.
    #[inline]
    pub fn lock_shared<P>(&self, cpu: &P)
    where
        P: Readers<Word = W>,
        Q: RawLock<P>,
    {
        if !self.announce(cpu) {
            self.lock.lock_shared(cpu);
            self.bias_in_turn(cpu);
        }
    }

    /// Takes the lock together with other readers if that needs no waiting. Returns whether this CPU now holds it.
    #[inline]
    pub fn try_lock_shared<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        if self.announce(cpu) {
            return true;
        }
        let taken = self.lock.try_lock_shared(cpu);
        if taken {
            self.bias_in_turn(cpu);
        }
        taken
    }

    /// As [`Qrwlock::steal_shared`].
    pub fn steal_shared<P: Readers<Word = W>>(&self, cpu: &P, patience: Budget) -> bool {
        if self.announce(cpu) {
            return true;
        }
        let taken = self.lock.steal_shared(cpu, patience);
        if taken {
            self.bias_in_turn(cpu);
        }
        taken
    }

    /// Releases the lock, which this CPU must hold as a reader.
    #[inline]
    pub fn unlock_shared<P: Readers<Word = W>>(&self, cpu: &P) {
        let place = self.own_place(cpu);
        let key = cpu.key(&self.bias);
        // ORDERING: Relaxed; the exchange releases.
        if cpu.load_address(place, Relaxed) != key || !self.leave(cpu, place, key) {
            self.lock.unlock_shared(cpu);
        }
    }

    /// Waits until this CPU alone holds the lock.
    #[inline]
    pub fn lock_exclusive<P>(&self, cpu: &P)
    where
        P: Readers<Word = W>,
        Q: RawLock<P>,
    {
        self.lock.lock_exclusive_then(cpu, || {
            if S::BLOCK {
                // ORDERING: SeqCst fence; pairs with the one in `look_for_writer`: **Bounded overtaking**.
                cpu.fence_after_exchange();
                self.suspend(cpu);
            }
        });
        if self.may_have_readers(cpu) {
            self.revoke(cpu);
        }
    }

    /// Takes the lock alone if that needs no waiting. Returns whether this CPU now holds it.
    #[inline]
    pub fn try_lock_exclusive<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        self.lock.try_lock_exclusive(cpu) && self.has_no_reader(cpu)
    }

    /// As [`Qrwlock::steal_exclusive`]. It does not wait for readers that have announced themselves.
    pub fn steal_exclusive<P: Readers<Word = W>>(&self, cpu: &P, patience: Budget) -> bool {
        self.lock.steal_exclusive(cpu, patience) && self.has_no_reader(cpu)
    }

    /// Releases the lock, which this CPU must hold as the writer.
    #[inline]
    pub fn unlock_exclusive<P: Readers<Word = W>>(&self, cpu: &P) {
        self.lock.unlock_exclusive(cpu);
    }

    /// Makes the writer, which this CPU must be, a reader: no other writer gets the lock in between.
    #[inline]
    pub fn downgrade<P: Readers<Word = W>>(&self, cpu: &P) {
        self.lock.downgrade(cpu);
    }

    /// Returns whether a CPU held the lock, or tried to take it, at some moment during the call.
    pub fn is_locked<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        let key = cpu.key(&self.bias);
        // The places first: a hold may move from a place to the lock below, not back.
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        places(cpu, key).any(|place| cpu.load_address(place, Relaxed) == key) || self.lock.is_locked(cpu)
    }

    /// Returns whether a writer held the lock, or waited for announced readers, at some moment during the call.
    pub fn is_locked_exclusive<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        self.lock.is_locked_exclusive(cpu)
    }

    /// Removes the announcements of readers that will never release the lock, before its memory is used for something
    /// else: a lock at the same place would find them. No CPU may use the lock any more.
    pub fn retire<P: Readers<Word = W>>(&self, cpu: &P) {
        // ORDERING: Relaxed, here and below; no reader is left whose release it could pair with.
        if cpu.load(&self.bias, Relaxed) != PLAIN {
            let key = cpu.key(&self.bias);
            for place in places(cpu, key) {
                let _ = cpu.compare_exchange_address(place, key, 0, Relaxed, Relaxed);
            }
        }
    }

    #[inline]
    fn own_place<'a, P: Readers<Word = W>>(&self, cpu: &'a P) -> &'a P::Address {
        cpu.own_line().place(cpu.key(&self.bias))
    }

    /// Announces this CPU as a reader if the lock is biased. Returns whether it now holds the lock.
    #[inline]
    fn announce<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; it looks again after the announcement.
        if cpu.load(&self.bias, Relaxed) != BIASED {
            return false;
        }
        let place = self.own_place(cpu);
        let key = cpu.key(&self.bias);
        // ORDERING: Relaxed, both; the fence orders it before the second look. The place itself protects nothing.
        if cpu.compare_exchange_address(place, 0, key, Relaxed, Relaxed).is_err() {
            return false;
        }
        if S::HALT_FENCE {
            // ORDERING: SeqCst fence; pairs with the one in `set_revoked`: **Exclusion**.
            cpu.fence_after_exchange();
        }
        // ORDERING: Acquire; pairs with the Release in `make_biased` and the fence in `has_no_reader`: this CPU must
        // see what the writers before wrote.
        let seen = cpu.load(&self.bias, unless_omitted(S::LOCK_ACQUIRE, Acquire));
        if seen == BIASED || !S::RECHECK {
            return true;
        }
        self.withdraw(cpu);
        false
    }

    /// Takes an announcement back that came after a revocation.
    #[cold]
    fn withdraw<P: Readers<Word = W>>(&self, cpu: &P) {
        if S::TAKE_BACK {
            self.unlock_shared(cpu);
        }
    }

    /// Clears `place` if it has the key, and tells a writer that waits for that. Returns whether it had the key.
    #[inline]
    fn leave<P: Readers<Word = W>>(&self, cpu: &P, place: &P::Address, key: usize) -> bool {
        // ORDERING: Release; pairs with the Acquire of the writer in `wait_for_reader`: it must not change what this
        // reader reads. Relaxed on failure: nothing was released.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        if cpu.compare_exchange_address(place, key, 0, release, Relaxed).is_err() {
            return false;
        }
        if S::HANDOVER_FENCE {
            // ORDERING: SeqCst fence; pairs with the one in `set_revoked`: **No lost kick**.
            cpu.fence_after_exchange();
        }
        // ORDERING: Relaxed; ordered by the fence.
        let seen = cpu.load(&self.bias, Relaxed);
        // A bit that is there already is that of a reader which kicks, too.
        if seen & STATE == REVOKED && seen & LEFT == 0 {
            self.tell_writer::<P>(cpu, seen);
        }
        true
    }

    #[cold]
    fn tell_writer<P: Readers<Word = W>>(&self, cpu: &P, seen: u32) {
        // A writer that waits no more is not told. ORDERING: Relaxed, both; the writer acquires from the place.
        let told = cpu.compare_exchange(&self.bias, seen, seen | LEFT, Relaxed, Relaxed);
        if told.is_ok() && seen >> SHIFT != 0 && S::KICK {
            cpu.kick(CpuId((seen >> SHIFT) - 1));
        }
    }

    /// Biases the lock, which this CPU holds below as a reader, if it is its turn to do so.
    #[inline]
    fn bias_in_turn<P: Readers<Word = W>>(&self, cpu: &P) {
        // ORDERING: Relaxed; the exchange looks again.
        let seen = cpu.load(&self.bias, Relaxed);
        if seen != BIASED && cpu.biases() {
            self.make_biased(cpu, seen);
        }
    }

    #[cold]
    fn make_biased<P: Readers<Word = W>>(&self, cpu: &P, seen: u32) {
        // ORDERING: Release; pairs with the Acquire in `announce`: what this CPU has acquired of writers. Relaxed on
        // failure: another reader has biased it.
        if cpu.compare_exchange(&self.bias, seen, BIASED, Release, Relaxed).is_ok() {
            self.look_for_writer(cpu);
        }
    }

    /// Suspends the bias, which has just been set, if a writer waits.
    fn look_for_writer<P: Readers<Word = W>>(&self, cpu: &P) {
        // ORDERING: SeqCst fence; pairs with the one in `lock_exclusive`: **Bounded overtaking**.
        cpu.fence(SeqCst);
        if self.lock.is_blocked(cpu) {
            self.suspend(cpu);
        }
    }

    /// Ends the bias for readers to come. The next writer looks for those that have announced themselves.
    fn suspend<P: Readers<Word = W>>(&self, cpu: &P) {
        // ORDERING: Relaxed, here and below; readers that see it take the lock below.
        if cpu.load(&self.bias, Relaxed) == BIASED {
            let _ = cpu.compare_exchange(&self.bias, BIASED, REVOKED, Relaxed, Relaxed);
        }
    }

    /// Returns whether readers may have announced themselves to this CPU, which has taken the lock below as the writer.
    #[inline]
    fn may_have_readers<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        // ORDERING: Relaxed; this CPU has acquired what all readers did that held the lock below.
        cpu.load(&self.bias, Relaxed) != PLAIN
    }

    /// Ends the bias of the lock, which this CPU has taken as the writer, and waits for the readers that have announced
    /// themselves.
    #[cold]
    fn revoke<P: Readers<Word = W>>(&self, cpu: &P) {
        // A CPU in an NMI must not halt, and has no number by which others could wake it.
        let number = if cpu.in_nmi() { 0 } else { cpu.cpu().0 + 1 };
        self.begin_revocation(cpu, number);
        let key = cpu.key(&self.bias);
        for place in places(cpu, key) {
            if Self::has_reader(cpu, place, key) {
                self.wait_for_reader(cpu, place, key, number);
            }
        }
        self.end_bias(cpu);
    }

    /// Returns whether no reader has announced itself to this CPU, which has taken the lock as the writer. Otherwise
    /// this CPU no longer holds it.
    fn has_no_reader<P: Readers<Word = W>>(&self, cpu: &P) -> bool {
        if !self.may_have_readers(cpu) {
            return true;
        }
        self.begin_revocation(cpu, 0);
        let key = cpu.key(&self.bias);
        let alone = !places(cpu, key).any(|place| Self::has_reader(cpu, place, key));
        if alone {
            self.end_bias(cpu);
        } else {
            // ORDERING: Relaxed; the fence in `set_revoked` releases what this CPU has acquired of writers, and pairs
            // with the Acquire in `announce`.
            cpu.store(&self.bias, BIASED, Relaxed);
            self.look_for_writer(cpu);
            cpu.wait_ends();
            self.lock.unlock_exclusive(cpu);
        }
        alone
    }

    fn begin_revocation<P: Readers<Word = W>>(&self, cpu: &P, number: u32) {
        // If this CPU vanishes, it has not held the lock.
        cpu.wait_begins(self.lock.word(), Qrwlock::<W, Q>::without_writer);
        self.set_revoked(cpu, number);
    }

    /// Makes the lock plain.
    fn end_bias<P: Readers<Word = W>>(&self, cpu: &P) {
        // ORDERING: Relaxed; readers that see it take the lock below.
        cpu.store(&self.bias, PLAIN, Relaxed);
        cpu.wait_ends();
    }

    /// Ends the bias for readers that look at it from now on, and forgets which ones have left.
    fn set_revoked<P: Readers<Word = W>>(&self, cpu: &P, number: u32) {
        // ORDERING: Relaxed; the fence orders it before the look at the places.
        cpu.store(&self.bias, number << SHIFT | REVOKED, Relaxed);
        // ORDERING: SeqCst fence; pairs with those in `announce` and `leave`.
        cpu.fence(SeqCst);
    }

    /// Returns whether a reader of the lock `key` has announced itself at `place`.
    #[inline]
    fn has_reader<P: Readers<Word = W>>(cpu: &P, place: &P::Address, key: usize) -> bool {
        // ORDERING: Acquire; pairs with the Release in `leave`.
        cpu.load_address(place, unless_omitted(S::LOOKUP_ACQUIRE, Acquire)) == key
    }

    /// Waits until the reader that has announced itself at `place` has left. `number` is as in
    /// [`set_revoked`](Self::set_revoked); 0 if this CPU must not halt.
    fn wait_for_reader<P: Readers<Word = W>>(&self, cpu: &P, place: &P::Address, key: usize, number: u32) {
        let has_left = |bias: u32| bias & LEFT != 0;
        let halts = number != 0;
        let budget = if halts { cpu.spin_threshold() } else { Budget::UNBOUNDED };
        cpu.contention_begin(self.lock.word());
        loop {
            // ORDERING: Relaxed, both; this CPU looks at the place again.
            if cpu.wait_until(&self.bias, budget, Relaxed, has_left).is_err() && halts {
                halt_while::<P, AllSteps>(cpu, || !has_left(cpu.load(&self.bias, Relaxed)));
            }
            self.set_revoked(cpu, number);
            if !Self::has_reader(cpu, place, key) {
                break;
            }
        }
        cpu.contention_end(self.lock.word());
    }
}

/// Returns the places at which readers of the lock `key` announce themselves.
fn places<P: Readers>(cpu: &P, key: usize) -> impl Iterator<Item = &<P as Platform>::Address> {
    cpu.reader_lines().iter().map(move |line| line.place(key))
}

impl<P, Q, S> RawRwlock<P> for BiasedRwlock<P::Word, Q, S>
where
    P: Readers,
    Q: RawLock<P>,
    S: Steps,
{
    forward_rwlock!(BiasedRwlock);
}

impl<P, Q, S> TryRwlock<P> for BiasedRwlock<P::Word, Q, S>
where
    P: Readers,
    Q: RawLock<P>,
    S: Steps,
{
    forward_try_rwlock!(BiasedRwlock);
}

impl<W, Q, S> fmt::Debug for BiasedRwlock<W, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRwlock").finish_non_exhaustive()
    }
}
