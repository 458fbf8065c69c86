//! Ticket lock: strictly first come, first served. If the next waiter in line is preempted, all others wait for it.
//!
//! ```text
//!  31            16 15             0
//! +----------------+----------------+
//! | tail: next     | head: now      |
//! | ticket to draw | serving        |
//! +----------------+----------------+
//! ```
//!
//! The lock is free while head equals tail. The tail is in the high half: drawing a ticket adds to the whole word, and
//! its carry leaves the word instead of entering the head. Linux 2.6.25 to 4.1.
//!
//! - **One waiter per ticket**: a ticket is drawn by an atomic addition, and there are more tickets than CPUs that
//!   wait. Linux has fewer CPUs than tickets. Threads may be more. So a waiter that finds more than 32768 tickets
//!   before its own gives its ticket back, and waits outside the queue. Two waiters could have the same ticket only if
//!   32768 CPUs were stopped between their addition and the comparison that follows it.
//! - **Exclusion**: the owner of the ticket that equals head holds the lock, and only the holder advances head.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::platform::{Platform, wait_for};
use crate::raw::{Described, Instead, RawLock};

const TAIL_ONE: u32 = 1 << 16;
/// The longest queue: half of the tickets.
const QUEUE_MAX: u16 = 1 << 15;

#[inline]
const fn head(word: u32) -> u16 {
    word as u16
}

#[inline]
const fn tail(word: u32) -> u16 {
    (word >> 16) as u16
}

/// A ticket lock: first come, first served.
#[derive(Debug)]
pub struct Ticket;

impl Described for Ticket {
    const FIFO: bool = true;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = true;
    const CPUS_MAX: u32 = // All tickets drawn look like none.
        (1 << 16) - 1;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "Linux 2.6.25 to 4.1";
}

impl<P: Platform> RawLock<P> for Ticket {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        // ORDERING: Acquire; if the lock is free this takes it, and pairs with the Release store of head in `unlock`.
        // The head may be newer than the draw, which is harmless: it never passes a ticket whose owner waits.
        let drawn = cpu.fetch_add_high16(word, 1, Acquire);
        if head(drawn) != tail(drawn) {
            wait_for_turn(cpu, word, tail(drawn));
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange confirms it.
        let seen = cpu.load(word, Relaxed);
        // ORDERING: Acquire, as in `lock`. Relaxed on failure: nothing was taken.
        head(seen) == tail(seen)
            && cpu
                .compare_exchange(word, seen, seen.wrapping_add(TAIL_ONE), Acquire, Relaxed)
                .is_ok()
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; no other CPU writes head while this CPU holds the lock.
        let mine = cpu.load_low16(word, Relaxed);
        // ORDERING: Release; pairs with the Acquire of the next ticket's owner. A half-word store, because other CPUs
        // may be changing the tail. No read-modify-write, because only this CPU writes head.
        cpu.store_low16(word, mine.wrapping_add(1), Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        head(seen) != tail(seen)
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        tail(seen).wrapping_sub(head(seen)) > 1
    }
}

/// Returns the word without waiters: held if it was held, otherwise free.
fn alone(word: u32) -> u32 {
    let held = u32::from(head(word) != tail(word));
    u32::from(head(word)).wrapping_add(held) << 16 | u32::from(head(word))
}

/// Returns whether the owner of `mine` must and can give its ticket back: the queue is too long, and no ticket was
/// drawn after this one.
fn is_surplus(word: u32, mine: u16) -> bool {
    mine.wrapping_sub(head(word)) > QUEUE_MAX && tail(word) == mine.wrapping_add(1)
}

#[cold]
fn wait_for_turn<P: Platform>(cpu: &P, word: &P::Word, mut mine: u16) {
    cpu.wait_begins(word, alone);
    cpu.contention_begin(word);
    loop {
        // ORDERING: Acquire; pairs with the Release store of head in `unlock`. Tickets drawn in between are
        // read-modify-writes, which continue that release.
        let seen = wait_for(cpu, word, Acquire, |value| {
            head(value) == mine || is_surplus(value, mine)
        });
        if head(seen) == mine {
            break;
        }
        // ORDERING: Relaxed, here and below; a ticket is only a place in the order. A failure means that the queue has
        // changed.
        if cpu
            .compare_exchange(word, seen, seen.wrapping_sub(TAIL_ONE), Relaxed, Relaxed)
            .is_ok()
        {
            wait_for(cpu, word, Relaxed, |value| {
                tail(value).wrapping_sub(head(value)) < QUEUE_MAX
            });
            // ORDERING: Relaxed; the wait for this ticket acquires.
            mine = tail(cpu.fetch_add_high16(word, 1, Relaxed));
        }
    }
    cpu.contention_end(word);
    cpu.wait_ends();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ticket_of_a_queue_that_is_too_long_is_surplus() {
        for head in [0, 5, 0xfffe] {
            for (distance, surplus) in [(1, false), (QUEUE_MAX, false), (QUEUE_MAX + 1, true)] {
                let mine = distance.wrapping_add(head);
                for (drawn_after, last) in [(1, true), (2, false)] {
                    let word = u32::from(mine.wrapping_add(drawn_after)) << 16 | u32::from(head);
                    assert_eq!(
                        is_surplus(word, mine),
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
            for (waiters, held) in [(0, 0), (1, 1), (2, 1), (700, 1)] {
                let word = |tail: u16| u32::from(head.wrapping_add(tail)) << 16 | u32::from(head);
                assert_eq!(alone(word(waiters)), word(held), "{head:#x} {waiters}");
            }
        }
    }
}
