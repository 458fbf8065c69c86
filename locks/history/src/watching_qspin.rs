//! Paravirtual queued spinlock that keeps the lock's holder and the head of its queue running (version 5 of Waiman
//! Long's series of 2014). No waiter halts. A waiter that finds another CPU absent kicks it.
//!
//! The word is that of [`Qspin`](holdfast_locks::Qspin) without the pending bit: a waiter outside the queue would watch
//! no other CPU (that version 5 did so, too, is uncertain).
//!
//! ```text
//!   holder  <---- kicks ----  head  <---- watch each other ---->  next
//! ```
//!
//! - **The holder**: the head knows its CPU if the holder came through the queue directly before the head. After
//!   [`HOLDER_PATIENCE`] the head kicks that CPU once. The holder may be another CPU by then: such a kick costs time
//!   only.
//! - **The next**: every [`INTERVAL`] the head asks the waiter behind it, by a new even number in that waiter's
//!   `locked` word. The waiter answers by a copy of the number in its `state`. Without an answer after one more
//!   interval, the head kicks the waiter's CPU, and asks again when the answer has come. (In the series the head clears
//!   a flag that the waiter sets again. A number needs one wait on one word.)
//! - **The head**: a waiter that was asked once expects the next question. After [`QUESTION_PATIENCE`] it kicks the CPU
//!   in front of it.
//! - **One writer**: only the predecessor writes a waiter's `locked` word: questions while it is the head, and 1 when
//!   it hands over. Only the waiter writes its `state`. So no question overwrites a handover.
//! - **Exclusion**: the locked byte goes from 0 to 1 only by an exchange that returns 0. It rests on no kick.
//!
//! The intervals are what we recall of the series (uncertain).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::parts::{Flavor, LOCKED, LOCKED_MASK, Turn, Waiter, is_contended, lock_queued, take, try_lock};
use holdfast_locks::{
    Budget, CpuId, Described, Event, Exclusive, Instead, Layout, Narrow, Nodes, Paravirt, RawLock, Recorder, Stealing,
    Unfair,
};

use crate::simple_unfair_qspin::held;

/// Iterations between two looks of the head at the waiter behind it.
const INTERVAL: u32 = 1 << 8;
/// Iterations after which the head kicks the holder's CPU.
const HOLDER_PATIENCE: u32 = 1 << 12;
/// Iterations after which a waiter misses the next question of the head.
const QUESTION_PATIENCE: Budget = Budget(1 << 11);

/// The value of a waiter's `locked` word after the handover. Questions are even.
const HEAD: u32 = 1;

/// A queued lock whose waiters spin and kick absent CPUs. First come, first served.
pub type WatchingQspin = Watching<false>;
/// A queued lock whose waiters spin and kick absent CPUs, and that newcomers may take past the queue.
pub type UnfairWatchingQspin = Watching<true>;

/// A queued lock whose holder, head and next waiter are kept running. `UNFAIR`: newcomers may take it past the queue.
/// For fewer than 16384 CPUs.
#[derive(Debug)]
pub struct Watching<const UNFAIR: bool>;

impl<const UNFAIR: bool> Described for Watching<UNFAIR> {
    const FIFO: bool = !UNFAIR;
    const HALTS: bool = false;
    const KICKS: bool = true;
    const WITHOUT_KICKS: Instead = if UNFAIR {
        Instead::Unfair("simple-unfair-qspin")
    } else {
        Instead::Native("exchange-qspin")
    };
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = Narrow::CPUS_MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "proposed in 2014: the PV lock of version 5, whose waiters kick absent CPUs";
}

#[expect(unsafe_code, reason = "promises exclusion")]
// SAFETY: **Exclusion**: the locked byte leaves 0 only by an exchange that returns 0.
unsafe impl<P: Nodes + Paravirt, const UNFAIR: bool> Exclusive<P> for Watching<UNFAIR> {}

impl<P: Nodes + Paravirt, const UNFAIR: bool> RawLock<P> for Watching<UNFAIR> {
    #[inline]
    fn lock(cpu: &P, word: &P::Word) {
        let taken = if UNFAIR {
            take(cpu, word)
        } else {
            // ORDERING: Acquire; pairs with the Release of the unlock. Relaxed on failure: nothing was taken.
            cpu.compare_exchange(word, 0, LOCKED, Acquire, Relaxed).is_ok()
        };
        if !taken {
            lock_queued::<P, Self>(cpu, word);
        }
    }

    #[inline]
    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        if UNFAIR {
            Unfair::try_lock(cpu, word)
        } else {
            try_lock(cpu, word)
        }
    }

    #[inline]
    fn unlock(cpu: &P, word: &P::Word) {
        // ORDERING: Release; pairs with the Acquire in `take` and in `lock`.
        cpu.store_low8(word, 0, Release);
    }

    #[inline]
    fn is_locked(cpu: &P, word: &P::Word) -> bool {
        // ORDERING: Relaxed; the answer is out of date whatever the ordering.
        let seen = cpu.load(word, Relaxed);
        if UNFAIR { Unfair::refused(seen) } else { seen != 0 }
    }

    #[inline]
    fn is_contended(cpu: &P, word: &P::Word) -> bool {
        is_contended(cpu, word)
    }
}

#[expect(unsafe_code, reason = "implements the steps of a queued lock")]
// SAFETY: **Exclusion** and **One writer** in the module's documentation.
unsafe impl<P: Nodes + Paravirt, const UNFAIR: bool> Flavor<P> for Watching<UNFAIR> {
    type Layout = Narrow;

    fn count(cpu: &P, event: Event) {
        cpu.recorder().add(event, 1);
    }

    fn try_lock(cpu: &P, word: &P::Word) -> bool {
        <Self as RawLock<P>>::try_lock(cpu, word)
    }

    fn may_take(word: u32) -> bool {
        if UNFAIR { Unfair::may_steal(word) } else { word == 0 }
    }

    fn prepare(cpu: &P, me: &Waiter<'_, P::Word>) {
        // ORDERING: Relaxed, both; published by the exchange of the tail.
        cpu.store(&me.node().state, 0, Relaxed);
        cpu.store(&me.node().extra, 0, Relaxed);
    }

    fn link(cpu: &P, me: &Waiter<'_, P::Word>, previous: u32) {
        // ORDERING: Relaxed; only this CPU reads it.
        cpu.store(&me.node().extra, previous, Relaxed);
    }

    fn wait_in_queue(cpu: &P, _word: &P::Word, me: &Waiter<'_, P::Word>, previous: u32) -> Turn {
        let mut question = 0;
        // Before the first question the predecessor is not the head, or has only become so: nothing is missed.
        let mut patience = Budget::UNBOUNDED;
        loop {
            let asked = question;
            // ORDERING: Relaxed; neither a question nor the handover publishes anything: taking the lock acquires.
            match cpu.wait_until(&me.node().locked, patience, Relaxed, |now| now != asked) {
                Ok(HEAD) => return Turn::Head,
                Ok(next) => {
                    question = next;
                    // ORDERING: Relaxed; an answer is a hint.
                    cpu.store(&me.node().state, question, Relaxed);
                    patience = QUESTION_PATIENCE;
                }
                Err(_) => {
                    kick(cpu, Narrow::decode(previous).0, Event::PvKickHead);
                    // One kick for each question that is missed.
                    patience = Budget::UNBOUNDED;
                }
            }
        }
    }

    fn wait_at_head(cpu: &P, word: &P::Word, me: &Waiter<'_, P::Word>) -> Option<u32> {
        // ORDERING: Relaxed; this CPU's own.
        let previous = cpu.load(&me.node().extra, Relaxed);
        let mut watch = Watch {
            holder: (previous != 0).then(|| Narrow::decode(previous).0),
            spun: 0,
            question: 0,
            kicked: false,
        };
        loop {
            let free = |now: u32| now & LOCKED_MASK == 0;
            // ORDERING: Relaxed; the exchange acquires.
            match cpu.wait_until(word, Budget(INTERVAL), Relaxed, free) {
                Ok(_) if take(cpu, word) => return Some(held(cpu, word)),
                // A newcomer was faster.
                Ok(_) => {}
                Err(_) => watch.look(cpu, me),
            }
        }
    }
}

/// The state of a head that watches the holder and the waiter behind it.
struct Watch {
    /// The CPU of the holder, as far as the head knows it. `None` if it is unknown or was kicked.
    holder: Option<CpuId>,
    /// Iterations spun as the head.
    spun: u32,
    /// The question asked last, or 0.
    question: u32,
    /// Whether the next waiter was kicked because of that question.
    kicked: bool,
}

impl Watch {
    /// Looks at the holder and the next waiter, after one more interval.
    fn look<P: Nodes + Paravirt>(&mut self, cpu: &P, me: &Waiter<'_, P::Word>) {
        self.spun = self.spun.saturating_add(INTERVAL);
        if self.spun >= HOLDER_PATIENCE
            && let Some(holder) = self.holder.take()
        {
            kick(cpu, holder, Event::PvKickHolder);
        }
        // ORDERING: Acquire; pairs with the Release store that linked the successor, after which its node may be
        // written to: the new waiter would overwrite an earlier question, which costs a kick.
        let next = cpu.load(&me.node().next, Acquire);
        if next == 0 {
            return;
        }
        let node = me.at::<Narrow, P>(cpu, next);
        // ORDERING: Relaxed; an answer is a hint.
        if self.question == 0 || cpu.load(&node.state, Relaxed) == self.question {
            self.question = following(self.question);
            self.kicked = false;
            // ORDERING: Relaxed; a question publishes nothing. **One writer**: the handover follows on this CPU.
            cpu.store(&node.locked, self.question, Relaxed);
        } else if !self.kicked {
            self.kicked = true;
            kick(cpu, Narrow::decode(next).0, Event::PvKickNext);
        }
    }
}

/// Returns the question after `question`: even and not 0.
fn following(question: u32) -> u32 {
    question.checked_add(2).unwrap_or(2)
}

/// Kicks a CPU that seems to be absent.
fn kick<P: Paravirt>(cpu: &P, target: CpuId, event: Event) {
    cpu.recorder().add(event, 1);
    cpu.kick(target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_neither_a_handover_nor_none() {
        for question in [0, 2, 1 << 31, u32::MAX - 1] {
            let next = following(question);
            assert!(next != 0 && next != HEAD && next != question, "{question} then {next}");
            assert_eq!(next % 2, 0);
        }
    }
}
