//! Halting and kicking: who waits for which lock, shared by the paravirtual locks of one guest.

use alloc::boxed::Box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::hash::LockTable;
use crate::platform::{Budget, CpuId, Interrupts, Platform, Word};
use crate::sharing::Sharing;
use crate::stats::{Event, Recorder};
use crate::steps::Steps;

/// A virtual CPU: it can give its physical CPU back and be woken by another.
///
/// # Safety
/// **Sticky kick**: a [`kick`](Paravirt::kick) that comes before its target halts makes the target's next halt return at
/// once. **Kick after write**: the halt that takes a kick, or several, acquires what their senders wrote before them. All
/// CPUs that share a lock must return the same [`waiting`](Paravirt::waiting) table.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Paravirt: Interrupts {
    /// Where the statistics go; `()` compiles them away.
    type Recorder: Recorder;

    /// Halts with interrupts masked (HLT): ends on a kick or an NMI, or for no reason.
    fn halt_masked(&self);
    /// Enables interrupts and halts as one indivisible step (`sti; hlt`); masks them again before it returns. Ends on a
    /// kick or any interrupt, or for no reason.
    fn halt_unmasked(&self);
    /// Wakes `cpu` from its halt, now or when it next halts.
    fn kick(&self, cpu: CpuId);
    /// Whether the host has taken `cpu` off its physical CPU: a hint that may be stale.
    fn is_preempted(&self, cpu: CpuId) -> bool;
    /// Whether a waiter in a queue halts at once when the one before it [is preempted](Paravirt::is_preempted), as it does
    /// when that one has halted. Linux 4.11 to 5.3: added by 75437bb304b2, taken back by 89340d0935c9, because one that gives
    /// up makes all behind it give up.
    #[inline]
    fn halts_behind_preempted(&self) -> bool {
        false
    }
    /// Who halts for which lock.
    fn waiting(&self) -> &WaitTable<Self::Word, Self::Address>;
    /// How many iterations a waiter spins before it halts.
    fn spin_threshold(&self) -> Budget;
    /// How a hybrid queued lock is shared between its queue and newcomers.
    #[inline]
    fn sharing(&self) -> Sharing {
        Sharing::LINUX
    }
    /// The caller has just taken a hybrid lock past its queue, and holds it. True: it was the last to do so; nobody may
    /// until the head of the queue has had its turn. This bounds overtaking even while the head is off its CPU.
    #[inline]
    fn overtook(&self) -> bool {
        false
    }
    /// A courteous head of the queue was kicked and found the lock taken again: leaves it to the others for a while.
    #[inline]
    fn nap(&self) {}
    /// Monotonic time in nanoseconds, for the statistics.
    fn now_ns(&self) -> u64;
    /// Where the statistics go.
    fn recorder(&self) -> &Self::Recorder;
}

/// The registration record of one CPU (Linux: `struct kvm_lock_waiting`).
#[derive(Debug)]
pub struct LockWaiting<W, A> {
    /// The lock's key, or 0: this CPU waits for none.
    pub lock: A,
    /// The ticket it waits for; valid while `lock` is not 0.
    pub want: W,
    /// When it was last kicked, in nanoseconds, or 0: for the statistics.
    kicked_at: AtomicU64,
}

impl<W: Word<u32>, A: Word<usize>> LockWaiting<W, A> {
    fn new() -> Self {
        let record = LockWaiting {
            lock: A::new(0),
            want: W::new(0),
            kicked_at: AtomicU64::new(0),
        };
        record.want.place(record.lock.line());
        record
    }
}

/// The halted waiters of one guest: for ticket locks a bitmap of CPUs and a record for each; for queued locks a hash
/// table from lock to head of the queue.
#[derive(Debug)]
pub struct WaitTable<W, A> {
    /// Linux: `waiting_cpus`, 32 CPUs a word.
    pub cpus: Box<[W]>,
    /// One record per CPU.
    pub records: Box<[LockWaiting<W, A>]>,
    pub(crate) locks: LockTable<W, A>,
}

impl<W: Word<u32>, A: Word<usize>> WaitTable<W, A> {
    /// An empty table for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        WaitTable {
            cpus: (0..cpus.div_ceil(32)).map(|_| W::new(0)).collect(),
            records: (0..cpus).map(|_| LockWaiting::new()).collect(),
            locks: LockTable::new(cpus),
        }
    }

    /// The record of `cpu`.
    pub fn record(&self, cpu: CpuId) -> &LockWaiting<W, A> {
        &self.records[cpu.0 as usize]
    }

    /// Whether nobody is registered and no lock listed: so it must be when nobody holds or waits for any lock.
    pub fn is_idle<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W, Address = A>,
    {
        // ORDERING: Relaxed; whoever knows that the locks are idle has synchronised with their last users.
        self.cpus.iter().all(|word| cpu.load(word, Relaxed) == 0) && self.locks.is_empty(cpu)
    }

    /// Writes the caller's record and sets its bit. **Valid when seen**: who reads the key, then acquires, reads the
    /// ticket that belongs to it or a later one; never an earlier. (A later one may be another lock's: see `unlock_kick`.)
    pub(crate) fn publish<P>(&self, cpu: &P, key: usize, want: u32)
    where
        P: Platform<Word = W, Address = A>,
    {
        let record = self.record(cpu.cpu());
        // ORDERING: Relaxed; the fence below keeps the new ticket from being seen under the old key.
        cpu.store_address(&record.lock, 0, Relaxed);
        // ORDERING: Release fence; pairs with the Acquire fence in `unlock_kick`: who reads the ticket stored next also
        // sees the old key gone.
        cpu.fence(Release);
        // ORDERING: Relaxed; published by the key.
        cpu.store(&record.want, want, Relaxed);
        // ORDERING: Release; pairs with the Acquire fence in `unlock_kick`, between key and ticket.
        cpu.store_address(&record.lock, key, Release);
        let (word, bit) = self.bit(cpu.cpu());
        // ORDERING: Relaxed; the caller announces itself on the lock with a Release, which publishes the bit.
        cpu.fetch_or(word, bit, Relaxed);
    }

    /// Takes the caller's bit and record back.
    pub(crate) fn withdraw<P>(&self, cpu: &P)
    where
        P: Platform<Word = W, Address = A>,
    {
        let (word, bit) = self.bit(cpu.cpu());
        // ORDERING: Relaxed, both; who still sees them sends a needless kick.
        cpu.fetch_and(word, !bit, Relaxed);
        cpu.store_address(&self.record(cpu.cpu()).lock, 0, Relaxed);
    }

    fn bit(&self, cpu: CpuId) -> (&W, u32) {
        (&self.cpus[cpu.0 as usize / 32], 1 << (cpu.0 % 32))
    }
}

/// The time, if anybody wants to know it.
pub(crate) fn clock<P: Paravirt>(cpu: &P) -> u64 {
    if P::Recorder::ACTIVE { cpu.now_ns() } else { 0 }
}

/// Halts as the caller's interrupts were before it masked them; they are masked again on return.
///
/// **Nested wait**: with interrupts enabled, a handler may itself wait for a lock and overwrite the caller's record. Its
/// interrupt ends this halt, and the caller then spins and registers again. That is sound only because enabling and
/// halting are one step: in between, a handler could use up record and kick, and the halt would never end.
pub(crate) fn halt<P: Paravirt, S: Steps>(cpu: &P, enabled: bool) {
    if !enabled {
        cpu.halt_masked();
    } else if S::ATOMIC_HALT {
        cpu.halt_unmasked();
    } else {
        cpu.irq_restore(true);
        cpu.halt_unmasked();
    }
}

/// Halts unless `waits` says no when interrupts are masked. May return for no reason. Linux: `pv_wait`.
pub(crate) fn halt_while<P: Paravirt, S: Steps>(cpu: &P, waits: impl Fn() -> bool) {
    if cpu.in_nmi() {
        return;
    }
    let enabled = cpu.irq_save();
    if waits() || !S::RETEST {
        let start = clock(cpu);
        // ORDERING: Relaxed, here and below; for the statistics.
        let kicked_at = &cpu.waiting().record(cpu.cpu()).kicked_at;
        kicked_at.store(0, Relaxed);
        halt::<P, S>(cpu, enabled);
        let end = clock(cpu);
        cpu.recorder().blocked(end.saturating_sub(start));
        match kicked_at.load(Relaxed) {
            0 => {}
            kicked_at => {
                cpu.recorder().add(Event::PvKickWake, 1);
                cpu.recorder().add(Event::PvLatencyWake, end.saturating_sub(kicked_at));
            }
        }
    }
    cpu.irq_restore(enabled);
}

/// Kicks `target`, which halts for a queued lock.
pub(crate) fn kick<P: Paravirt>(cpu: &P, target: CpuId) {
    let start = clock(cpu);
    // ORDERING: Relaxed; for the statistics.
    cpu.waiting().record(target).kicked_at.store(start, Relaxed);
    cpu.kick(target);
    cpu.recorder().add(Event::PvKickUnlock, 1);
    cpu.recorder()
        .add(Event::PvLatencyKick, clock(cpu).saturating_sub(start));
}

/// Kicks the CPU that waits for ticket `want` of the lock `key`. Linux: `kvm_unlock_kick`.
///
/// Finding nobody is fine: that waiter has not announced itself yet and will look again. So is a kick too many.
///
/// **Look on**: a match does not end the search. A waiter whose halt an interrupt has ended may overwrite its record while it
/// is read: then its old key and its new ticket, of another lock, can look like the waiter that is meant. Who is meant has a
/// record that stays, and is found all the same. (`kvm_unlock_kick` stops at the first match, and so can lose a kick.)
#[cold]
pub(crate) fn unlock_kick<P: Paravirt, S: Steps>(cpu: &P, key: usize, want: u32) {
    cpu.recorder().add(Event::ReleasedSlow, 1);
    let waiting = cpu.waiting();
    for (index, word) in waiting.cpus.iter().enumerate() {
        // ORDERING: Relaxed; the caller has acquired the announcement.
        let mut bits = cpu.load(word, Relaxed);
        while bits != 0 {
            let target = CpuId(index as u32 * 32 + bits.trailing_zeros());
            bits &= bits - 1;
            let record = waiting.record(target);
            // ORDERING: Relaxed; the fence below orders it before the ticket.
            if cpu.load_address(&record.lock, Relaxed) != key {
                continue;
            }
            // ORDERING: Acquire fence; pairs with the Release store of the key in `publish`. Weaker, an old ticket
            // could be read under the new key, and a needless kick be sent.
            cpu.fence(Acquire);
            // ORDERING: Relaxed; ordered by the fence.
            if cpu.load(&record.want, Relaxed) == want {
                cpu.recorder().add(Event::ReleasedSlowKicked, 1);
                if S::KICK {
                    cpu.kick(target);
                }
                if !S::LOOK_ON {
                    return;
                }
            }
        }
    }
}
