//! Halting and kicking: the trait of virtual CPUs, and the table of halted waiters that all paravirtual locks of a
//! guest share.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::hash::{LockTable, QueueHead};
use crate::cpu::layout::NODES_PER_CPU;
use crate::cpu::platform::{Budget, CpuId, Interrupts, Platform, Word};
use crate::cpu::sharing::Sharing;
use crate::cpu::slots::Slots;
use crate::cpu::stats::{Event, Recorder};
use crate::cpu::steps::Steps;

/// A virtual CPU: it can halt, which frees its physical CPU, and be woken by another virtual CPU.
///
/// # Safety
/// - **Sticky kick**: if a [`kick`](Paravirt::kick) is sent before its target halts, the target's next halt returns at
///   once.
/// - **Kick after write**: a halt that ends by one or more kicks acquires what their senders wrote before the kicks.
/// - All CPUs that share a lock must return the same [`waiting`](Paravirt::waiting) table.
#[expect(
    unsafe_code,
    reason = "exclusion rests on what implements this trait: it is unsafe to implement"
)]
pub unsafe trait Paravirt: Interrupts {
    /// The type that receives the statistics; `()` compiles them away.
    type Recorder: Recorder;

    /// Halts with interrupts masked (HLT). Returns on a kick or an NMI, or for no reason.
    fn halt_masked(&self);
    /// Enables interrupts and halts, as one indivisible step (`sti; hlt`). Returns on a kick or any interrupt, or for
    /// no reason, with interrupts masked again.
    fn halt_unmasked(&self);
    /// Wakes `cpu` from its halt, or makes its next halt return at once.
    fn kick(&self, cpu: CpuId);
    /// Returns whether the host has preempted `cpu`. A hint that may be out of date.
    fn is_preempted(&self, cpu: CpuId) -> bool;
    /// Returns for how long this CPU's slice still lasts, if the host says so. Nanoseconds. `None` if it says nothing,
    /// if no other thread waits for the physical CPU, or if the time that it said is over. A hint.
    #[inline]
    fn slice_left_ns(&self) -> Option<u64> {
        None
    }
    /// Returns whether a waiter in a queue halts at once if its predecessor [is preempted](Paravirt::is_preempted), as
    /// it does if its predecessor has halted.
    ///
    /// So in Linux 4.11 to 5.3. Commit 75437bb304b2 added it. Commit 89340d0935c9 reverted it, because a waiter that
    /// gives up makes all waiters behind it give up.
    #[inline]
    fn halts_behind_preempted(&self) -> bool {
        false
    }
    /// Returns the table of halted waiters, which all CPUs of the guest share.
    fn waiting(&self) -> &WaitTable<Self::Word, Self::Address>;
    /// Returns a number of CPUs that no CPU which waits has reached, to shorten the search for waiters.
    #[inline]
    fn cpus_end(&self) -> usize {
        usize::MAX
    }
    /// Returns for how many iterations a waiter spins before it halts. Linux: `SPIN_THRESHOLD`.
    fn spin_threshold(&self) -> Budget;
    /// Returns how a hybrid queued lock is shared between its queue and newcomers.
    #[inline]
    fn sharing(&self) -> Sharing {
        Sharing::LINUX
    }
    /// Called when the caller has just taken a hybrid lock past its queue, and holds it. If it returns `true`, no other
    /// CPU may overtake the head of the queue until the head has held the lock, or has spun in vain for
    /// [`Paravirt::spin_threshold`] with overtaking blocked. This bounds overtaking even while the head does not run.
    #[inline]
    fn overtook(&self) -> bool {
        false
    }
    /// Pauses the head of the queue, which was kicked and found the lock taken again: running CPUs may use the lock for
    /// a while. Called only with a non-zero [`Sharing::head`].
    #[inline]
    fn nap(&self) {}
    /// Returns monotonic time in nanoseconds, for the statistics.
    fn now_ns(&self) -> u64;
    /// Returns the receiver of the statistics.
    fn recorder(&self) -> &Self::Recorder;
}

/// The registration record of one CPU (Linux: `struct kvm_lock_waiting`).
#[derive(Debug)]
#[repr(C)]
pub struct HaltedCpu<W, A> {
    /// The key of the lock that this CPU waits for, or 0.
    lock: A,
    /// The ticket that this CPU waits for. Valid while `lock` is not 0.
    want: W,
    /// When this CPU was last kicked, in nanoseconds, or 0. For the statistics.
    kicked_at: AtomicU64,
}

impl<W, A> HaltedCpu<W, A> {
    /// Makes the record of a CPU that does not wait; both words must be zero. Usable in a `static`.
    pub const fn from_words(lock: A, want: W) -> Self {
        HaltedCpu {
            lock,
            want,
            kicked_at: AtomicU64::new(0),
        }
    }
}

impl<W: Word<u32>, A: Word<usize>> HaltedCpu<W, A> {
    fn new() -> Self {
        let record = Self::from_words(A::new(0), W::new(0));
        record.want.place(record.lock.line());
        record
    }
}

/// The halted waiters of one guest.
///
/// For ticket locks it is a bitmap of CPUs with a record for each CPU, for queued locks a hash table from a lock to the
/// head of its queue.
#[derive(Debug)]
#[repr(C)]
pub struct WaitTable<W: 'static, A: 'static> {
    /// The CPUs that are registered, 32 in each word. Linux: `waiting_cpus`.
    cpus: Slots<W>,
    /// One record for each CPU.
    records: Slots<HaltedCpu<W, A>>,
    pub(crate) locks: LockTable<W, A>,
}

impl<W, A> WaitTable<W, A> {
    /// Makes an empty table of memory that its caller reserves: a word that is zero for each 32 CPUs, a record for each
    /// CPU, and an entry for each queued lock for which a CPU may halt at the same time. Usable in a `static`.
    ///
    /// # Panics
    /// If there are fewer words than records need, or if the number of `heads` is below 256 or no power of two.
    pub const fn from_static(
        cpus: &'static [W],
        records: &'static [HaltedCpu<W, A>],
        heads: &'static [QueueHead<W, A>],
    ) -> Self {
        assert!(cpus.len() >= records.len().div_ceil(32));
        WaitTable {
            cpus: Slots::Static(cpus),
            records: Slots::Static(records),
            locks: LockTable::from_static(heads),
        }
    }
}

impl<W: Word<u32>, A: Word<usize>> WaitTable<W, A> {
    /// Makes an empty table for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        WaitTable {
            cpus: (0..cpus.div_ceil(32)).map(|_| W::new(0)).collect(),
            records: (0..cpus).map(|_| HaltedCpu::new()).collect(),
            locks: LockTable::new(NODES_PER_CPU * cpus),
        }
    }

    /// Removes all waiters, which are CPUs that have vanished.
    pub fn abandon<P>(&self, cpu: &P)
    where
        P: Platform<Word = W, Address = A>,
    {
        // ORDERING: Relaxed, here and in the calls; no other CPU runs that could see it.
        self.cpus.iter().for_each(|word| cpu.store(word, 0, Relaxed));
        self.locks.clear(cpu);
    }

    /// Lists the waiter `code`, the head of the queue of the lock `key`, for the unlock that kicks it. Returns how many
    /// entries it visited.
    ///
    /// # Panics
    /// If no entry is left.
    pub fn list<P>(&self, cpu: &P, key: usize, code: u32) -> u64
    where
        P: Platform<Word = W, Address = A>,
    {
        self.locks.insert(cpu, key, code)
    }

    /// Removes the entry of the lock `key` and returns the code of its waiter. The caller must have acquired the
    /// listing.
    ///
    /// # Panics
    /// If the lock is not listed.
    pub fn unlist<P>(&self, cpu: &P, key: usize) -> u32
    where
        P: Platform<Word = W, Address = A>,
    {
        self.locks.remove(cpu, key)
    }

    /// Returns the number of CPUs for which the table was made.
    pub fn cpus(&self) -> usize {
        self.records.len()
    }

    /// Returns the record of `cpu`.
    fn record(&self, cpu: CpuId) -> &HaltedCpu<W, A> {
        &self.records[cpu.0 as usize]
    }

    /// Returns whether no CPU is registered and no lock is listed. It must be so when no CPU holds or waits for a lock.
    pub fn is_idle<P>(&self, cpu: &P) -> bool
    where
        P: Platform<Word = W, Address = A>,
    {
        // ORDERING: Relaxed; a caller that knows the locks to be idle has synchronized with their last users.
        self.cpus.iter().all(|word| cpu.load(word, Relaxed) == 0) && self.locks.is_empty(cpu)
    }

    /// Writes the caller's record and sets its bit.
    ///
    /// **Valid when seen**: an unlocker that reads the key, then acquires, reads the ticket that belongs to this key or
    /// a later one, never an earlier one. (A later ticket may be for another lock: see
    /// [`unlock_kick`](crate::parts::unlock_kick).)
    pub fn publish<P>(&self, cpu: &P, key: usize, want: u32)
    where
        P: Platform<Word = W, Address = A>,
    {
        let record = self.record(cpu.cpu());
        // ORDERING: Relaxed; the fence below keeps the new ticket from being visible under the old key.
        cpu.store_address(&record.lock, 0, Relaxed);
        // ORDERING: Release fence; pairs with the Acquire fence in `unlock_kick`: an unlocker that reads the ticket
        // stored next also sees that the old key is gone.
        cpu.fence(Release);
        // ORDERING: Relaxed; published by the key.
        cpu.store(&record.want, want, Relaxed);
        // ORDERING: Release; pairs with the Acquire fence in `unlock_kick`, between key and ticket.
        cpu.store_address(&record.lock, key, Release);
        let (word, bit) = self.bit(cpu.cpu());
        // ORDERING: Relaxed; the caller then announces itself on the lock with a Release, which publishes the bit.
        cpu.fetch_or(word, bit, Relaxed);
    }

    /// Clears the caller's bit and record.
    pub fn withdraw<P>(&self, cpu: &P)
    where
        P: Platform<Word = W, Address = A>,
    {
        let (word, bit) = self.bit(cpu.cpu());
        // ORDERING: Relaxed, both; an unlocker that still sees them sends a needless kick.
        cpu.fetch_and(word, !bit, Relaxed);
        cpu.store_address(&self.record(cpu.cpu()).lock, 0, Relaxed);
    }

    fn bit(&self, cpu: CpuId) -> (&W, u32) {
        (&self.cpus[cpu.0 as usize / 32], 1 << (cpu.0 % 32))
    }
}

/// Returns the time in nanoseconds, or 0 if the recorder keeps nothing.
pub fn clock<P: Paravirt>(cpu: &P) -> u64 {
    if P::Recorder::ACTIVE { cpu.now_ns() } else { 0 }
}

/// Halts with interrupts `enabled`, as they were before the caller masked them. They are masked again on return.
///
/// **Nested wait**: with interrupts enabled, a handler may itself wait for a lock and overwrite the caller's record.
/// The interrupt also ends this halt, and the caller then spins and registers again. This works only because enabling
/// interrupts and halting are one step. Between two steps a handler could consume record and kick, and the halt would
/// never end.
pub fn halt<P: Paravirt, S: Steps>(cpu: &P, enabled: bool) {
    if !enabled {
        cpu.halt_masked();
    } else if S::ATOMIC_HALT {
        cpu.halt_unmasked();
    } else {
        cpu.irq_restore(true);
        cpu.halt_unmasked();
    }
}

/// Masks interrupts, then halts if `waits` still returns true. May return for no reason. Linux: `kvm_wait`.
pub fn halt_while<P: Paravirt, S: Steps>(cpu: &P, waits: impl Fn() -> bool) {
    if cpu.in_nmi() {
        return;
    }
    let enabled = cpu.irq_save();
    if waits() || !S::RETEST {
        let start = clock(cpu);
        // ORDERING: Relaxed, here and below; `kicked_at` is for the statistics only.
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

/// Kicks `target`, which halts for a queued lock. Linux: `pv_kick`.
pub fn kick<P: Paravirt>(cpu: &P, target: CpuId) {
    let start = clock(cpu);
    // ORDERING: Relaxed; for the statistics.
    cpu.waiting().record(target).kicked_at.store(start, Relaxed);
    cpu.kick(target);
    cpu.recorder().add(Event::PvKickUnlock, 1);
    cpu.recorder()
        .add(Event::PvLatencyKick, clock(cpu).saturating_sub(start));
}

/// Kicks the CPUs that wait for one of the tickets `want` of the lock `key`. Linux: `kvm_unlock_kick`, for one ticket.
/// The tickets are of 16 bits, and wrap.
///
/// It is harmless to find no waiter: the waiter has not announced itself yet and will read the lock again. It is
/// harmless to kick a CPU in vain, too.
///
/// **All matches are kicked**: a match does not end the search. A waiter whose halt was ended by an interrupt may
/// overwrite its record while it is read. Then its old key and its new ticket, which is for another lock, can look like
/// the wanted waiter. The record of the wanted waiter does not change, so the search still finds it. (`kvm_unlock_kick`
/// stops at the first match and so can lose a kick.)
#[cold]
pub fn unlock_kick<P: Paravirt, S: Steps>(cpu: &P, key: usize, want: core::ops::Range<u16>) {
    cpu.recorder().add(Event::ReleasedSlow, 1);
    let waiting = cpu.waiting();
    for (index, word) in waiting.cpus.iter().take(cpu.cpus_end().div_ceil(32)).enumerate() {
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
            // ORDERING: Acquire fence; pairs with the Release store of the key in `publish`. Without it, an old ticket
            // could be read under the new key, and a needless kick would be sent.
            cpu.fence(Acquire);
            // ORDERING: Relaxed; ordered by the fence.
            let distance = (cpu.load(&record.want, Relaxed) as u16).wrapping_sub(want.start);
            if distance < want.end.wrapping_sub(want.start) {
                cpu.recorder().add(Event::ReleasedSlowKicked, 1);
                if S::KICK {
                    cpu.kick(target);
                }
                if !S::KEEP_SEARCHING {
                    return;
                }
            }
        }
    }
}
