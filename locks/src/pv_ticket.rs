//! Paravirtual ticket lock: a waiter that has spun for long enough halts, and the unlocker kicks the next in line.
//!
//! ```text
//!  31            16 15            1 0
//! +----------------+---------------+-+
//! | tail           | head          |S|   S: slow path, somebody may have halted
//! +----------------+---------------+-+
//! ```
//!
//! Tickets advance by 2, which leaves bit 0 of the head for the slow-path flag (Linux since 4.0; before, it was in the
//! tail, and unlock had to touch the word after its release). Up to 32767 CPUs.
//!
//! - **One waiter per ticket**, **Exclusion**: as for [`ticket`](crate::ticket); the flag takes no part.
//! - **No lost kick**: the waiter writes its record, sets the flag, and reads head again; the unlocker advances head and
//!   with the same read-modify-write samples the flag. Both are read-modify-writes of one word, so one comes first. If
//!   the flag does, the unlocker sees it, and by release and acquire the record. If the new head does, the waiter's
//!   second look sees it. The kick is sticky, so it may come before the halt.
//! - **Word untouched after release**: one instruction releases the lock and samples the flag; what follows uses only
//!   the lock's key.
//!
//! The flag outlives the last unlock and costs needless scans, until a locker that saw it in its spin loop, or a
//! `try_lock`, clears it.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::paravirt::{Paravirt, clock, halt, unlock_kick};
use crate::platform::Platform;
use crate::raw::RawLock;
use crate::stats::{Event, Recorder};
use crate::steps::{AllSteps, Steps, unless_omitted};

const SLOW: u16 = 1;
const INC: u16 = 2;
const TAIL_INC: u32 = (INC as u32) << 16;

/// Head without the flag: the ticket being served.
#[inline]
const fn serving(word: u32) -> u16 {
    word as u16 & !SLOW
}

#[inline]
const fn tail(word: u32) -> u16 {
    (word >> 16) as u16
}

/// First come, first served; waiters halt and are kicked.
#[derive(Debug)]
pub struct PvTicket<S = AllSteps>(PhantomData<fn() -> S>);

impl<P: Paravirt, S: Steps> RawLock<P> for PvTicket<S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; if the lock is free this takes it, and pairs with the Release in `unlock`.
        // A newer head is as good: it never passes a ticket that is waited for.
        let drawn = cpu.fetch_add_high16(word, INC, unless_omitted(S::LOCK_ACQUIRE, Acquire));
        // The flag is part of this comparison on purpose: a flagged lock goes on to clear it.
        if drawn as u16 != tail(drawn) {
            lock_slow::<P, S>(cpu, word, drawn);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange confirms it.
        let seen = cpu.load(word, Relaxed);
        let taken = seen.wrapping_add(TAIL_INC) & !u32::from(SLOW);
        // ORDERING: Acquire, as in `lock`. Relaxed on failure: nothing was taken.
        serving(seen) == tail(seen) && cpu.compare_exchange(word, seen, taken, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        let key = cpu.key(word);
        // ORDERING: Relaxed; nobody but this CPU changes the ticket being served. (The flag may change: it is ignored.)
        let seen = cpu.load_low16(word, Relaxed);
        let mine = seen & !SLOW;
        // Without the flag a half-word store will do, which carries nothing into the tail. It may overwrite a flag that has
        // just been set: `lock_spinning` sees to it.
        // ORDERING: Release; pairs with the Acquire of the next ticket's owner.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        if seen == mine
            && cpu
                .compare_store_low16(word, mine, mine.wrapping_add(INC), release)
                .is_ok()
        {
            return;
        }
        // Where head wraps, the addition carries into the tail; the owner knows its ticket and takes the carry back in the
        // same addition. The flag changes nothing: 0xfffe + 2 and 0xffff + 2 both carry one.
        let wraps = mine == u16::MAX - SLOW;
        let step = if wraps && S::STOP_CARRY {
            u32::from(INC).wrapping_sub(1 << 16)
        } else {
            INC.into()
        };
        // ORDERING: Release; pairs with the Acquire of the next ticket's owner.
        let before = cpu.fetch_add(word, step, release);
        if before as u16 & SLOW != 0 {
            if S::LOOKUP_ACQUIRE {
                // ORDERING: Acquire fence; after the read of the flag above, it pairs with the Release that set it.
                cpu.fence(Acquire);
            }
            unlock_kick::<P, S>(cpu, key, mine.wrapping_add(INC).into());
        }
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        serving(seen) != tail(seen)
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        tail(seen).wrapping_sub(serving(seen)) > INC
    }
}

#[cold]
fn lock_slow<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, drawn: u32) {
    let mine = tail(drawn);
    let contended = serving(drawn) != mine;
    if contended {
        cpu.contention_begin(word);
    }
    // ORDERING: Acquire; pairs with the Release in `unlock`, through the read-modify-writes in between.
    let acquire = unless_omitted(S::LOCK_ACQUIRE, Acquire);
    let seen = loop {
        let threshold = cpu.spin_threshold();
        match cpu.wait_until(word, threshold, acquire, |value| serving(value) == mine) {
            Ok(value) => break value,
            Err(_) => lock_spinning::<P, S>(cpu, word, mine),
        }
    };
    if seen as u16 & SLOW != 0 {
        clear_flag(cpu, word, mine);
    }
    if contended {
        cpu.contention_end(word);
    }
}

/// Clears the flag if the caller, who holds the lock, is the last in line. With others queued it must stay: one of them
/// may have halted.
fn clear_flag<P: Platform>(cpu: &P, word: &P::Word, mine: u16) {
    let alone = u32::from(mine.wrapping_add(INC)) << 16 | u32::from(mine);
    // ORDERING: Relaxed; the lock is held already, and the exchange, a read-modify-write, keeps the head's release.
    // Failure is harmless: somebody queued.
    let _ = cpu.compare_exchange(word, alone | u32::from(SLOW), alone, Relaxed, Relaxed);
}

/// Gives the physical CPU back until ticket `mine` is served, or for less. Linux: `kvm_lock_spinning`.
fn lock_spinning<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, mine: u16) {
    if cpu.in_nmi() {
        // The record may belong to the lock that this NMI interrupted.
        return;
    }
    let enabled = cpu.irq_save();
    let start = clock(cpu);
    let waiting = cpu.waiting();
    waiting.publish(cpu, cpu.key(word), mine.into());
    cpu.recorder().add(Event::TakenSlow, 1);
    // ORDERING: Release; pairs with the Acquire fence in `unlock`: who sees the flag sees the record and the bit.
    let announce = unless_omitted(S::ANNOUNCE_RELEASE, Release);
    cpu.fetch_or(word, SLOW.into(), announce);
    let settled = cpu.settle();
    // ORDERING: Relaxed; coherence with the announcement above, on the same word, is what **No lost kick** needs.
    // The outer loop's Acquire load takes the lock.
    let seen = cpu.load(word, Relaxed);
    if S::RECHECK && serving(seen) == mine {
        cpu.recorder().add(Event::TakenSlowPickup, 1);
    } else if settled && seen as u16 & SLOW == 0 {
        // Overwritten by an unlocker that has not seen it. The line moves: spin again.
    } else {
        halt::<P, S>(cpu, enabled);
    }
    waiting.withdraw(cpu);
    cpu.irq_restore(enabled);
    cpu.recorder().blocked(clock(cpu).saturating_sub(start));
}
