//! Paravirtual ticket lock with the slow-path flag in the tail, as in Linux 3.12 to 3.19.
//!
//! ```text
//!  31          17 16 15             0
//! +--------------+-+----------------+
//! | tail         |S| head           |   S: slow path, a waiter may have halted
//! +--------------+-+----------------+
//! ```
//!
//! It waits as [`PvTicket`](holdfast_locks::PvTicket) does, whose **One waiter per ticket** and **Exclusion** hold here
//! too. Waiters draw and announce themselves in one half of the word, and the holder advances the other one. So the
//! unlock cannot sample the flag by the addition that releases: a locked addition, which is a full barrier, and then a
//! load.
//!
//! - **No lost kick**: the waiter writes its record, sets the flag, and reads head again. The unlocker advances head,
//!   and then reads the flag. All are accesses of one word, and those that write are read-modify-writes, so one comes
//!   first. If the flag does, the unlocker's load sees it. If the new head does, the waiter's second look sees it.
//!   Only an unlocker clears the flag, by an exchange that succeeds only if no ticket is waited for.
//! - **Word touched after release**: the load of the flag, and the exchange that clears it, come when the lock is
//!   already free. If the next holder frees the lock's memory, they access what the memory has become, and the
//!   exchange can clear a bit of it. Linux 4.0 moved the flag into the head for this (commit d6abfdb20223). **So a
//!   lock of this kind must outlive the unlocks of all its holders**, not only their critical sections.
//!
//! The CPU that releases last clears the flag at once, where the form of 4.0 leaves that to the next holder.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::parts::{unless_omitted, unlock_kick};
use holdfast_locks::{AllSteps, Described, Exclusive, Instead, Paravirt, RawLock, Steps};

use crate::opportunistic_ticket::{Form, INC, SLOW, TAIL_INC, lock_slow, serving};

/// The flag is in the tail. Every unlock is a read-modify-write, which keeps the flag.
enum TailFlag {}

impl Form for TailFlag {
    const FLAG: u32 = (SLOW as u32) << 16;
    const BLIND_UNLOCK: bool = false;
}

/// A ticket lock whose waiters halt and are kicked, in the form whose unlock accesses the word after the release. First
/// come, first served. `S` plants faults in tests.
#[derive(Debug)]
pub struct TailPvTicket<S = AllSteps>(PhantomData<fn() -> S>);

impl<S: Steps> Described for TailPvTicket<S> {
    const FIFO: bool = true;
    const HALTS: bool = true;
    const KICKS: bool = true;
    const WITHOUT_KICKS: Instead = Instead::Native("ticket");
    const DRAWS_TICKETS: bool = true;
    const CPUS_MAX: u32 = // One bit of a ticket is a flag.
        (1 << 15) - 1;
    const MAY_BE_FREED_AT_ONCE: bool = false;
    const ORIGIN: &'static str = "of guests in Linux 3.12 to 3.19";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: one ticket is served at a time, and it has one owner. What an unlock does after its release
// changes only the flag. If `S` leaves steps out, the unsafe implementation of `Steps` answers for the consequences.
unsafe impl<P: Paravirt, S: Steps> Exclusive<P> for TailPvTicket<S> {}

impl<P: Paravirt, S: Steps> RawLock<P> for TailPvTicket<S> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; if the lock is free this takes it, and pairs with the Release in `unlock`.
        // The head may be newer than the draw, which is harmless: it never passes a ticket whose owner waits.
        let drawn = cpu.fetch_add_high16(word, INC, unless_omitted(S::LOCK_ACQUIRE, Acquire));
        // As in Linux the flag is part of this comparison: a flagged lock takes the slow path.
        if drawn as u16 != (drawn >> 16) as u16 {
            lock_slow::<P, S, TailFlag, 0>(cpu, word, drawn);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange confirms it.
        let seen = cpu.load(word, Relaxed);
        serving(seen) == TailFlag::tail(seen)
            // ORDERING: Acquire, as in `lock`. Relaxed on failure: nothing was taken.
            && cpu
                .compare_exchange(word, seen, seen.wrapping_add(TAIL_INC), Acquire, Relaxed)
                .is_ok()
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        let key = cpu.key(word);
        // ORDERING: Relaxed; only this CPU changes the head, and the exchange of the slow path confirms the tail.
        let before = cpu.load(word, Relaxed);
        // If head wraps, the addition carries into the tail, and the holder subtracts the carry in the same addition.
        let wraps = before as u16 == u16::MAX - SLOW;
        let step = if wraps && S::STOP_CARRY {
            u32::from(INC).wrapping_sub(1 << 16)
        } else {
            INC.into()
        };
        // ORDERING: Release; pairs with the Acquire of the next ticket's owner.
        cpu.fetch_add(word, step, unless_omitted(S::UNLOCK_RELEASE, Release));
        // From here on the lock is another CPU's: **Word touched after release**.
        // ORDERING: Relaxed; coherence with the addition above, on the same word, is what **No lost kick** needs. On
        // x86 that is a locked instruction, so that this load cannot pass it.
        if cpu.load_high16(word, Relaxed) & SLOW != 0 {
            unlock_slow::<P, S>(cpu, word, key, before);
        }
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        serving(seen) != TailFlag::tail(seen)
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        TailFlag::tail(seen).wrapping_sub(serving(seen)) > INC
    }
}

/// Clears the flag if no CPU waits, and otherwise kicks the next waiter. `before` is the word as it was before the
/// release. Linux: `__ticket_unlock_slowpath`.
#[cold]
fn unlock_slow<P: Paravirt, S: Steps>(cpu: &P, word: &P::Word, key: usize, before: u32) {
    let next = serving(before).wrapping_add(INC);
    let released = before & 0xffff_0000 | u32::from(next);
    // A snapshot without the flag is older than the flag, so that the exchange fails.
    let idle = released & !TailFlag::FLAG;
    // ORDERING: Relaxed, both; it takes nothing, and as a read-modify-write it keeps the release of the addition.
    if TailFlag::tail(released) == next && cpu.compare_exchange(word, released, idle, Relaxed, Relaxed).is_ok() {
        return;
    }
    if S::LOOKUP_ACQUIRE {
        // ORDERING: Acquire fence; after the read of the flag in `unlock`, it pairs with the Release that set it.
        cpu.fence(Acquire);
    }
    unlock_kick::<P, S>(cpu, key, next..next.wrapping_add(INC));
}
