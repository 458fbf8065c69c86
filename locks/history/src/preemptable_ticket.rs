//! Preemptable ticket lock (Ouyang and Lange, VEE 2013): a ticket decides when a waiter may try, a hold bit whether the
//! lock is held.
//!
//! ```text
//!  31            16 15            1 0
//! +----------------+---------------+-+
//! | tail           | head          |H|   H: held
//! +----------------+---------------+-+
//! ```
//!
//! A waiter is *eligible* once its ticket is served, or once it has waited for a time proportional to its distance from
//! the head: then the waiters before it are presumed to be preempted. Eligible waiters race for the hold bit. Each
//! acquisition draws one ticket and each unlock serves one, whichever CPU drew it. So a waiter may find that head has
//! passed its ticket, which makes it eligible, too. The lock needs nothing from the host. It serves in order of arrival
//! unless a waiter is preempted. Up to 16383 CPUs.
//!
//! **Exclusion**: only a CPU that has set the hold bit from 0 to 1 holds the lock, and only the holder clears it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Described, Exclusive, Instead, Platform, RawLock, wait_for};

const HELD: u16 = 1;
const INC: u16 = 2;
const TAIL_INC: u32 = (INC as u32) << 16;
/// A distance from this value on means that head has passed the ticket.
const PASSED: u16 = 1 << 14;

/// Returns head without the hold bit.
#[inline]
const fn serving(word: u32) -> u16 {
    word as u16 & !HELD
}

#[inline]
const fn tail(word: u32) -> u16 {
    (word >> 16) as u16
}

#[inline]
const fn is_held(word: u32) -> bool {
    word as u16 & HELD != 0
}

/// A ticket lock whose waiters may overtake preempted ones.
///
/// `SHIFT` is the binary logarithm of the number of PAUSEs that a waiter waits for each waiter before it. A smaller
/// value is faster if waiters are preempted, and less fair if they are not.
#[derive(Debug)]
pub struct PreemptableTicket<const SHIFT: u32 = 8>;

impl<const SHIFT: u32> Described for PreemptableTicket<SHIFT> {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = true;
    const CPUS_MAX: u32 = // One bit is a flag, and another tells whether a ticket has passed.
        (1 << 14) - 1;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "a paper of 2013";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: only a CPU that has exchanged hold bit 0 for 1 holds the lock.
unsafe impl<P: Platform, const SHIFT: u32> Exclusive<P> for PreemptableTicket<SHIFT> {}

impl<P: Platform, const SHIFT: u32> RawLock<P> for PreemptableTicket<SHIFT> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        if !Self::try_lock(cpu, word) {
            lock_slow::<P, SHIFT>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the exchange confirms it.
        let seen = cpu.load(word, Relaxed);
        let taken = seen.wrapping_add(TAIL_INC) | u32::from(HELD);
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: nothing was taken.
        !is_held(seen)
            && serving(seen) == tail(seen)
            && cpu.compare_exchange(word, seen, taken, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Relaxed; only the holder changes head.
        let head = cpu.load(word, Relaxed) as u16;
        // Adding 1 clears the hold bit and serves the next ticket. A plain half-word store: while the bit is set, no
        // other CPU writes this half.
        // ORDERING: Release; pairs with the Acquire of the next holder.
        cpu.store_low16(word, head.wrapping_add(1), Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        is_held(cpu.load(word, Relaxed))
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        tail(seen).wrapping_sub(serving(seen)) > INC
    }
}

#[cold]
fn lock_slow<P: Platform, const SHIFT: u32>(cpu: &P, word: &P::Word) {
    cpu.wait_begins(word, alone);
    // ORDERING: Relaxed; a ticket is only a place in the order.
    let mut seen = cpu.fetch_add(word, TAIL_INC, Relaxed);
    let mine = tail(seen);
    cpu.contention_begin(word);
    loop {
        let head = serving(seen);
        let distance = mine.wrapping_sub(head) / INC;
        if distance != 0 && distance < PASSED {
            let budget = Budget((u32::from(distance) << SHIFT).min(u32::MAX - 1));
            // ORDERING: Relaxed; only setting the hold bit takes the lock.
            if let Ok(moved) = cpu.wait_until(word, budget, Relaxed, |now| serving(now) != head) {
                // The queue moves: the time of each waiter starts again.
                seen = moved;
                continue;
            }
        }
        // ORDERING: Relaxed; as above.
        let free_or_moved = |now| !is_held(now) || serving(now) != head;
        seen = wait_for(cpu, word, Relaxed, free_or_moved);
        // ORDERING: Acquire; pairs with the Release in `unlock`. Relaxed on failure: another CPU was faster.
        if serving(seen) == head
            && cpu
                .compare_exchange_low16(word, head, head | HELD, Acquire, Relaxed)
                .is_ok()
        {
            break;
        }
        // ORDERING: Relaxed; only the start of the next wait.
        seen = cpu.load(word, Relaxed);
    }
    cpu.wait_ends();
    cpu.contention_end(word);
}

/// Returns the word without waiters: held if it was held, otherwise free.
fn alone(word: u32) -> u32 {
    let held = if is_held(word) { INC } else { 0 };
    u32::from(serving(word).wrapping_add(held)) << 16 | u32::from(word as u16)
}

#[cfg(test)]
mod tests {
    use holdfast_locks::Word;

    use super::*;
    use crate::cpu::solo::{Solo, SoloWord, relaxed};

    /// Returns for how many iterations a newcomer waits for a free lock with this word, and the word that it leaves.
    fn wait(word: u32) -> (u32, u32) {
        let word = SoloWord::new(word);
        let before = relaxed();
        <PreemptableTicket>::lock(&Solo, &word);
        (relaxed() - before, Solo.load(&word, Relaxed))
    }

    #[test]
    fn a_waiter_waits_in_proportion_to_its_distance() {
        // Three tickets before its own are drawn, and their owners do not run.
        assert_eq!(wait(6 << 16), (3 << 8, 8 << 16 | 1));
        assert_eq!(wait(2 << 16), (1 << 8, 4 << 16 | 1));
    }

    #[test]
    fn a_waiter_whose_ticket_has_been_passed_does_not_wait() {
        assert_eq!(wait(4 << 16 | 10), (0, 6 << 16 | 11));
    }
}
