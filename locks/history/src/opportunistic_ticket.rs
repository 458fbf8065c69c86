//! The opportunistic ticket lock (Kashyap, Min and Kim, 2016), and the waits that it shares with
//! [`TailPvTicket`](crate::TailPvTicket).
//!
//! It is [`PvTicket`](holdfast_locks::PvTicket), with the same word, except that waiters next to the holder never halt,
//! and that an unlock kicks several waiters. **Exclusion**, **No lost kick** and **Word untouched after release** hold
//! as there: where a waiter spins and whom an unlock kicks besides makes no difference to them.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::parts::{clock, halt, unless_omitted, unlock_kick};
use holdfast_locks::{
    AllSteps, Budget, Described, Event, Exclusive, Instead, Paravirt, Platform, RawLock, Recorder, Steps, wait_for,
};

/// The slow-path flag, in the half of the word that [`Form`] says.
pub(crate) const SLOW: u16 = 1;
pub(crate) const INC: u16 = 2;
pub(crate) const TAIL_INC: u32 = (INC as u32) << 16;
/// The longest queue, times [`INC`]: three quarters of the tickets. (More than half, because an experiment has 16384
/// CPUs in one queue.)
const QUEUE_MAX: u16 = 24_576 * INC;

/// Returns head without a flag: the ticket being served.
#[inline]
pub(crate) const fn serving(word: u32) -> u16 {
    word as u16 & !SLOW
}

/// Where the slow-path flag is, and what follows from it for a waiter.
pub(crate) trait Form {
    /// The flag's bit.
    const FLAG: u32;
    /// An unlocker stores the head without looking at the flag, which it may overwrite. A new holder clears the flag.
    const BLIND_UNLOCK: bool;

    /// Returns tail without the flag: the next ticket to draw.
    #[inline]
    fn tail(word: u32) -> u16 {
        ((word & !Self::FLAG) >> 16) as u16
    }
}

/// The flag is in the head.
enum HeadFlag {}

impl Form for HeadFlag {
    const FLAG: u32 = SLOW as u32;
    const BLIND_UNLOCK: bool = true;
}

/// The opportunistic ticket lock: the `NEAR` waiters next to the holder spin without end, and an unlock kicks the
/// halted waiters among the next `AHEAD`, at least 1. `S` plants faults in tests.
///
/// The two numbers are the paper's (docs/spec/guest-locks.md, "Published variants"). There the waiters nearby spin for
/// 2^34 iterations. That the four are the owners of the next four tickets is our reading (uncertain).
#[derive(Debug)]
pub struct OpportunisticTicket<S = AllSteps, const NEAR: u16 = 18, const AHEAD: u16 = 4>(PhantomData<fn() -> S>);

impl<S: Steps, const NEAR: u16, const AHEAD: u16> Described for OpportunisticTicket<S, NEAR, AHEAD> {
    const FIFO: bool = true;
    const HALTS: bool = true;
    const KICKS: bool = true;
    const WITHOUT_KICKS: Instead = Instead::Native("ticket");
    const DRAWS_TICKETS: bool = true;
    const CPUS_MAX: u32 = // One bit of a ticket is a flag.
        (1 << 15) - 1;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "a paper of 2016, on Linux 4.0";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: one ticket is served at a time, and it has one owner. If `S` leaves steps out, the unsafe
// implementation of `Steps` answers for the consequences.
unsafe impl<P: Paravirt, S: Steps, const NEAR: u16, const AHEAD: u16> Exclusive<P>
    for OpportunisticTicket<S, NEAR, AHEAD>
{
}

impl<P: Paravirt, S: Steps, const NEAR: u16, const AHEAD: u16> RawLock<P> for OpportunisticTicket<S, NEAR, AHEAD> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; if the lock is free this takes it, and pairs with the Release in `unlock`.
        // The head may be newer than the draw, which is harmless: it never passes a ticket whose owner waits.
        let drawn = cpu.fetch_add_high16(word, INC, unless_omitted(S::LOCK_ACQUIRE, Acquire));
        // The flag is part of this comparison on purpose: the slow path clears it.
        if drawn as u16 != HeadFlag::tail(drawn) {
            lock_slow::<P, S, HeadFlag, NEAR>(cpu, word, drawn);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange confirms it.
        let seen = cpu.load(word, Relaxed);
        let taken = seen.wrapping_add(TAIL_INC) & !u32::from(SLOW);
        // ORDERING: Acquire, as in `lock`. Relaxed on failure: nothing was taken.
        serving(seen) == HeadFlag::tail(seen) && cpu.compare_exchange(word, seen, taken, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        let key = cpu.key(word);
        // ORDERING: Relaxed; only this CPU changes the ticket being served. (The flag may change; it is not used here.)
        let seen = cpu.load_low16(word, Relaxed);
        let mine = seen & !SLOW;
        // Without the flag a half-word store is enough, which carries nothing into the tail. It may overwrite a flag
        // that has just been set: `lock_spinning` checks for that.
        // ORDERING: Release; pairs with the Acquire of the next ticket's owner.
        let release = unless_omitted(S::UNLOCK_RELEASE, Release);
        if seen == mine
            && cpu
                .compare_store_low16(word, mine, mine.wrapping_add(INC), release)
                .is_ok()
        {
            return;
        }
        // If head wraps, the addition carries into the tail. The owner knows its ticket, so it subtracts the carry in
        // the same addition. The flag makes no difference: 0xfffe + 2 and 0xffff + 2 both carry one.
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
            let next = mine.wrapping_add(INC);
            unlock_kick::<P, S>(cpu, key, next..next.wrapping_add(AHEAD * INC));
        }
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        serving(seen) != HeadFlag::tail(seen)
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        HeadFlag::tail(seen).wrapping_sub(serving(seen)) > INC
    }
}

/// Waits for the ticket that `drawn`, the word before the draw, names.
#[cold]
pub(crate) fn lock_slow<P: Paravirt, S: Steps, F: Form, const NEAR: u16>(cpu: &P, word: &P::Word, drawn: u32) {
    let mut last = drawn;
    let mut mine = F::tail(drawn);
    let contended = serving(drawn) != mine;
    cpu.wait_begins(word, alone::<F>);
    if contended {
        cpu.contention_begin(word);
    }
    // ORDERING: Acquire; pairs with the Release in `unlock`, through the read-modify-writes in between.
    let acquire = unless_omitted(S::LOCK_ACQUIRE, Acquire);
    let seen = loop {
        let threshold = if is_near::<NEAR>(last, mine) {
            Budget::UNBOUNDED
        } else {
            cpu.spin_threshold()
        };
        match cpu.wait_until(word, threshold, acquire, |value| {
            serving(value) == mine || is_surplus::<F>(value, mine)
        }) {
            Ok(value) if serving(value) == mine => break value,
            Ok(value) => {
                mine = wait_outside::<P, F>(cpu, word, value).unwrap_or(mine);
                last = value;
            }
            // Another waiter may have drawn a ticket meanwhile. Once it gives its ticket back, this waiter must.
            Err(value) if is_too_far(value, mine) => {}
            // The queue has moved meanwhile.
            Err(value) if is_near::<NEAR>(value, mine) => last = value,
            Err(_) => {
                lock_spinning::<P, S, F>(cpu, word, mine);
                if NEAR > 0 {
                    // ORDERING: Relaxed; only how long to spin depends on it.
                    last = cpu.load(word, Relaxed);
                }
            }
        }
    };
    if F::BLIND_UNLOCK && seen & F::FLAG != 0 {
        clear_flag(cpu, word, mine);
    }
    cpu.wait_ends();
    if contended {
        cpu.contention_end(word);
    }
}

/// Returns whether the owner of `mine` is one of the `NEAR` waiters next to the holder.
fn is_near<const NEAR: u16>(word: u32, mine: u16) -> bool {
    NEAR > 0 && mine.wrapping_sub(serving(word)) <= NEAR * INC
}

/// Returns the word without waiters: held if it was held, otherwise free.
fn alone<F: Form>(word: u32) -> u32 {
    let held = if serving(word) == F::tail(word) { 0 } else { INC };
    u32::from(serving(word).wrapping_add(held)) << 16 | u32::from(serving(word))
}

/// Returns whether the queue before the owner of `mine` is too long.
fn is_too_far(word: u32, mine: u16) -> bool {
    mine.wrapping_sub(serving(word)) > QUEUE_MAX
}

/// Returns whether the owner of `mine` must and can give its ticket back: the queue is too long, and no ticket was
/// drawn after this one.
fn is_surplus<F: Form>(word: u32, mine: u16) -> bool {
    is_too_far(word, mine) && F::tail(word) == mine.wrapping_add(INC)
}

/// Gives back the caller's ticket, the last one that was drawn according to `seen`, waits until the queue is shorter,
/// and draws another one. Returns it, or `None` if the queue has changed meanwhile, so that the caller keeps its
/// ticket.
#[cold]
fn wait_outside<P: Platform, F: Form>(cpu: &P, word: &P::Word, seen: u32) -> Option<u16> {
    // ORDERING: Relaxed, all but the last; a ticket is only a place in the order.
    cpu.compare_exchange(word, seen, seen.wrapping_sub(TAIL_INC), Relaxed, Relaxed)
        .ok()?;
    wait_for(cpu, word, Relaxed, |value| {
        F::tail(value).wrapping_sub(serving(value)) < QUEUE_MAX
    });
    // ORDERING: Relaxed; the caller waits for its ticket and acquires then.
    Some(F::tail(cpu.fetch_add_high16(word, INC, Relaxed)))
}

/// Clears the flag if the caller, which holds the lock, is the last in line. If others wait the flag must stay: one of
/// them may have halted.
fn clear_flag<P: Platform>(cpu: &P, word: &P::Word, mine: u16) {
    let alone = u32::from(mine.wrapping_add(INC)) << 16 | u32::from(mine);
    // ORDERING: Relaxed; the lock is held already, and the exchange, a read-modify-write, keeps the head's release.
    // Failure is harmless: another CPU has drawn a ticket.
    let _ = cpu.compare_exchange(word, alone | u32::from(SLOW), alone, Relaxed, Relaxed);
}

/// Halts until ticket `mine` is served. May return earlier. Linux: `kvm_lock_spinning`.
fn lock_spinning<P: Paravirt, S: Steps, F: Form>(cpu: &P, word: &P::Word, mine: u16) {
    if cpu.in_nmi() {
        // The record may belong to the lock that this NMI interrupted.
        return;
    }
    let enabled = cpu.irq_save();
    let start = clock(cpu);
    let waiting = cpu.waiting();
    waiting.publish(cpu, cpu.key(word), mine.into());
    cpu.recorder().add(Event::TakenSlow, 1);
    // ORDERING: Release; pairs with the Acquire fence in `unlock`: an unlocker that sees the flag sees record and bit.
    let announce = unless_omitted(S::ANNOUNCE_RELEASE, Release);
    cpu.fetch_or(word, F::FLAG, announce);
    let settled = F::BLIND_UNLOCK && cpu.settle();
    // ORDERING: Relaxed; coherence with the announcement above, on the same word, is what **No lost kick** needs.
    // The Acquire load of the outer loop takes the lock.
    let seen = cpu.load(word, Relaxed);
    if S::RECHECK && serving(seen) == mine {
        cpu.recorder().add(Event::TakenSlowPickup, 1);
    } else if settled && seen & F::FLAG == 0 {
        // An unlocker has overwritten the flag without seeing it. The line moves, so the waiter spins again.
    } else {
        halt::<P, S>(cpu, enabled);
    }
    waiting.withdraw(cpu);
    cpu.irq_restore(enabled);
    cpu.recorder().blocked(clock(cpu).saturating_sub(start));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ticket_of_a_queue_that_is_too_long_is_surplus() {
        for head in [0, 10, 0xfffe] {
            for (distance, surplus) in [(2, false), (QUEUE_MAX, false), (QUEUE_MAX + 2, true)] {
                let mine = distance.wrapping_add(head);
                for (drawn_after, last) in [(2, true), (4, false)] {
                    let word = u32::from(mine.wrapping_add(drawn_after)) << 16 | u32::from(head);
                    assert_eq!(
                        is_surplus::<HeadFlag>(word, mine),
                        surplus && last,
                        "{head:#x} {distance:#x} {drawn_after}"
                    );
                }
            }
        }
    }

    #[test]
    fn without_its_waiters_a_word_is_free_or_held() {
        for head in [0u16, 0x10, 0xfffe] {
            for (waiters, held) in [(0, 0), (1, 2), (2, 2), (700, 2)] {
                let word = |tail: u16| u32::from(head.wrapping_add(tail)) << 16 | u32::from(head);
                assert_eq!(alone::<HeadFlag>(word(waiters * 2)), word(held), "{head:#x} {waiters}");
            }
        }
    }
}
