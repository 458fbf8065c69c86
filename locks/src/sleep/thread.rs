//! A thread of an operating system as a CPU: how it waits, halts, and shares a lock with running threads.
//!
//! A spinning vCPU has a physical CPU of its own most of the time, and a kick costs as much as a few critical sections.
//! Threads are different. They outnumber CPUs, so a spinning thread may keep the holder off its CPU. To wake a thread
//! on an idle CPU costs as much as a hundred short critical sections, and more in a virtual machine. So:
//!
//! - A spinning thread yields its CPU (from iteration 65 on, every second time) long before it halts.
//! - **Turns**: a hybrid lock stays with running threads for about a turn before it goes through its queue. The head of
//!   the queue, once awake, sleeps for a part of a turn, then blocks overtaking. If it gets no CPU, the overtaking
//!   threads block overtaking themselves at the end of the turn ([`Turns::overtook`]). So a waiter is overtaken for at
//!   most one turn for each waiter before it and one for itself, plus one critical section each.
//! - **Trials**: unlocks are compare-stores or exchanges, whichever costs less ([`Changeover`]).
//!
//! The trait [`Thread`] has the system calls: real ones on host threads, simulated ones in virtual time. Everything
//! else is here.
//!
//! | parker | |
//! |---|---|
//! | 0 | running, no kick pending |
//! | 1 | running, a kick is pending: the next halt returns at once |
//! | 2 | halted, or about to be |
//!
//! **Sticky kick**: only a halt removes a 1, and it then returns. Only the owner writes 0 and 2. So the kicker's
//! exchange for 1 either finds 2 and wakes the owner, or leaves a 1 that the owner's next exchange finds.

mod changeover;

pub use changeover::{Batch, Changeover};

use core::cell::Cell;
use core::sync::atomic::Ordering::{self, AcqRel, Relaxed};

use crate::cpu::platform::{Budget, Platform, spin_until};
use crate::cpu::sharing::Sharing;

/// The default number of iterations that a paravirtual waiter spins before it halts.
pub const SPIN_THRESHOLD: Budget = Budget(192);

/// The default length of a turn in nanoseconds: how long running threads may overtake the head of a hybrid lock's
/// queue.
pub const TURN_NS: u64 = 1_000_000;

/// The number of iterations of a wait after which every second one yields the CPU. They take about 1.6 us on a CPU
/// whose PAUSE takes 25 ns: longer than a short critical section and the transfer of its lock.
const YIELD_AFTER: u32 = 64;

/// The head of the queue sleeps for a turn divided by this number. The head should be awake before the overtaking
/// threads find that the turn is over. A timer is late by 50 us and more (the kernel's timer slack), so the sleep is
/// much shorter than a turn.
pub const NAP_DIVISOR: u64 = 4;

/// How threads share hybrid locks. Newcomers and the head compete for about as long as a short critical section and a
/// transfer of the lock take. Waiters behind the head do not spin: their turn is far away.
pub const SHARING: Sharing = Sharing {
    newcomer: Budget(250),
    queued: Budget(0),
    head: Budget(40),
};

/// A thread, with the system calls that it needs.
///
/// Exclusion does not rest on these calls, and each may return for no reason. But a wakeup must not be lost if it comes
/// after [`Thread::futex_wait`] has found its value.
pub trait Thread: Platform {
    /// Yields the CPU to another runnable thread, if there is one (`sched_yield`).
    fn give_way(&self);
    /// Sleeps until woken if `word` holds `value`; otherwise returns at once (FUTEX_WAIT).
    fn futex_wait(&self, word: &Self::Word, value: u32);
    /// Wakes one thread that sleeps on `word` (FUTEX_WAKE).
    fn futex_wake(&self, word: &Self::Word);
    /// Interrupts all other running threads of the process, and waits until each has been interrupted (`membarrier`).
    fn interrupt_others(&self);
    /// Spins without yielding the CPU, for at most `budget` iterations: the default of [`Platform::wait_until`].
    #[inline]
    fn spin(
        &self,
        word: &Self::Word,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        spin_until(self, word, budget, order, until)
    }
}

/// Implements [`Platform::wait_until`] for a thread: it spins for 64 iterations, then yields the CPU in every second
/// one.
pub fn wait_until<T: Thread>(
    thread: &T,
    word: &T::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    /// Iterations before the first yield, which is the first even one after `YIELD_AFTER`.
    const SPINS: u32 = YIELD_AFTER + 1;
    let endless = budget == Budget::UNBOUNDED;
    let spins = if endless { SPINS } else { budget.0.min(SPINS) };
    let mut seen = thread.spin(word, Budget(spins), order, &until);
    let mut left = budget.0 - spins;
    while let Err(value) = seen {
        if left == 0 {
            return Err(value);
        }
        thread.give_way();
        let pauses = (left - 1).min(1);
        seen = thread.spin(word, Budget(pauses), order, &until);
        if !endless {
            left -= 1 + pauses;
        }
    }
    seen
}

const RUNNING: u32 = 0;
const KICKED: u32 = 1;
const HALTED: u32 = 2;

/// The word on which one thread sleeps while it is halted. It is on a cache line of its own, which only its thread and
/// the threads that kick it access.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Parker<W>(W);

impl<W> Parker<W> {
    /// Makes the parker of a running thread. `word` must be 0.
    pub const fn from_word(word: W) -> Self {
        Parker(word)
    }

    /// Sleeps until the next [`kick`](Parker::kick) of this parker, which must be the calling thread's. May return
    /// earlier.
    pub fn halt<T: Thread<Word = W>>(&self, thread: &T) {
        // ORDERING: Acquire, here and below; pairs with the kicker's Release, so that what the kicker wrote before the
        // kick is visible. Release as well: a kick that is removed here must not appear older than what this CPU wrote
        // before.
        if thread.swap(&self.0, HALTED, AcqRel) == RUNNING {
            thread.futex_wait(&self.0, HALTED);
        }
        // ORDERING: AcqRel, as above. This removes the kick that ended the halt.
        thread.swap(&self.0, RUNNING, AcqRel);
    }

    /// Ends the halt of this parker's thread, or makes its next halt return at once. `thread` is the caller.
    pub fn kick<T: Thread<Word = W>>(&self, thread: &T) {
        // ORDERING: AcqRel; Release pairs with the Acquire in `halt`.
        if thread.swap(&self.0, KICKED, AcqRel) == HALTED {
            thread.futex_wake(&self.0);
        }
    }

    /// Makes this the parker of a running thread again: its thread does not exist any more.
    pub fn abandon<T: Thread<Word = W>>(&self, thread: &T) {
        // ORDERING: Relaxed; no other thread runs that could see it.
        thread.store(&self.0, RUNNING, Relaxed);
    }
}

/// A time during which a thread overtakes without waiting. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Streak {
    since: u64,
    /// When the clock was last read.
    looked: u64,
    /// The number of acquisitions between two readings of the clock.
    step: u32,
}

/// The largest number of acquisitions between two readings of the clock, each of which costs as much as a short
/// critical section.
const STEP_MAX: u32 = 64;
/// The number of readings of the clock in a turn, if there are enough acquisitions.
const LOOKS_PER_TURN: u64 = 16;

/// The overtaking of one thread, at all locks together: a thread that overtakes at several locks is stopped sooner at
/// each.
#[derive(Debug)]
pub struct Turns {
    /// The number of acquisitions before the next reading of the clock.
    unseen: Cell<u32>,
    streak: Cell<Option<Streak>>,
}

impl Turns {
    /// Makes the record of a thread that has not overtaken a queue.
    pub const fn new() -> Self {
        Turns {
            unseen: Cell::new(0),
            streak: Cell::new(None),
        }
    }

    /// Records that the thread has overtaken a queue. `look` returns the length of a turn and the time, both in
    /// nanoseconds. Returns `true` if the thread has overtaken for a whole turn without waiting in between.
    ///
    /// Inlined but for the look: a call, and the registers that it saves, would take as long as the lock itself.
    #[inline(always)]
    pub fn overtook(&self, look: impl FnOnce() -> (u64, u64)) -> bool {
        match self.unseen.get() {
            0 => self.look(look),
            unseen => {
                self.unseen.set(unseen - 1);
                false
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, look: impl FnOnce() -> (u64, u64)) -> bool {
        let (turn, now) = look();
        let streak = self.streak.get();
        let step = match streak {
            Some(streak) if now - streak.since >= turn => {
                self.end_streak();
                return true;
            }
            // Double the number if that many acquisitions did not take long.
            Some(streak) if now - streak.looked < turn / LOOKS_PER_TURN => (2 * streak.step).min(STEP_MAX),
            _ => 1,
        };
        let since = streak.map_or(now, |streak| streak.since);
        self.streak.set(Some(Streak {
            since,
            looked: now,
            step,
        }));
        self.unseen.set(step - 1);
        false
    }

    /// Ends the streak: the thread waits, so other threads can take the lock.
    pub fn end_streak(&self) {
        self.streak.set(None);
        self.unseen.set(0);
    }
}

impl Default for Turns {
    fn default() -> Self {
        Turns::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::cpu::platform::Word;
    use crate::cpu::solo::{Solo, SoloWord};
    use core::cell::Cell;

    /// What a waiting thread did, in order: a bit for each iteration, 1 if it yielded the CPU.
    struct Log {
        steps: Cell<u32>,
        gave_way: Cell<u128>,
        /// The thread begins to spin, or has yielded since it last looked at the word.
        begins: Cell<bool>,
    }

    std::thread_local! {
        static LOG: Log = const { Log { steps: Cell::new(0), gave_way: Cell::new(0), begins: Cell::new(true) } };
    }

    fn step(gives_way: bool) {
        LOG.with(|log| {
            let at = log.steps.get();
            log.gave_way.set(log.gave_way.get() | u128::from(gives_way) << at);
            log.steps.set(at + 1);
        });
    }

    impl Thread for Solo {
        fn give_way(&self) {
            step(true);
            LOG.with(|log| log.begins.set(true));
        }
        fn futex_wait(&self, _: &SoloWord<u32>, _: u32) {}
        fn futex_wake(&self, _: &SoloWord<u32>) {}
        fn interrupt_others(&self) {}
    }

    #[test]
    fn every_second_iteration_yields_after_the_64th_and_the_budget_is_kept() {
        for budget in [0, 1, 63, 64, 65, 66, 67, 68, 100, 127] {
            LOG.with(|log| {
                log.steps.set(0);
                log.gave_way.set(0);
                log.begins.set(true);
            });
            let word = SoloWord::new(7);
            // Each look but the first comes after an iteration.
            let look = |value| {
                assert_eq!(value, 7);
                if !LOG.with(|log| log.begins.replace(false)) {
                    step(false);
                }
                false
            };
            assert_eq!(wait_until(&Solo, &word, Budget(budget), Relaxed, look), Err(7));
            let (steps, gave_way) = LOG.with(|log| (log.steps.get(), log.gave_way.get()));
            assert_eq!(steps, budget);
            for iteration in 1..=budget {
                let expected = iteration > YIELD_AFTER && iteration % 2 == 0;
                assert_eq!(
                    gave_way >> (iteration - 1) & 1 == 1,
                    expected,
                    "{iteration} of {budget}"
                );
            }
        }
    }

    #[test]
    fn the_clock_is_read_less_often_as_long_as_that_takes_a_small_part_of_a_turn() {
        // A turn of 1 ms; a sixteenth of it is 62.5 us. The numbers of acquisitions between readings of the clock.
        let short = [1, 2, 4, 8, 16, 32, 64, 64, 64];
        let long = [1, 2, 4, 8, 16, 32, 1, 2, 4];
        for (acquisition, expected) in [(100, short), (2_000, long)] {
            let turns = Turns::new();
            let (mut now, mut read_at) = (0, Vec::new());
            while read_at.len() < 10 {
                let mut read = false;
                let stop = turns.overtook(|| {
                    read = true;
                    (1_000_000, now)
                });
                assert!(!stop, "a turn ends after {now} ns");
                if read {
                    read_at.push(now / acquisition);
                }
                now += acquisition;
            }
            let gaps: Vec<u64> = read_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(gaps, expected, "acquisitions of {acquisition} ns");
        }
    }

    #[test]
    fn a_thread_that_overtakes_for_a_turn_must_stop_and_may_start_again() {
        let turns = Turns::new();
        let mut stopped = Cell::new(0);
        let overtake = |now: u64| turns.overtook(|| (1000, now));
        for now in 0..3000 {
            if overtake(now) {
                stopped.set(stopped.get() + 1);
            }
        }
        assert!((2..=3).contains(stopped.get_mut()), "{stopped:?}");
        turns.end_streak();
        assert!(!overtake(100_000), "a new streak");
    }
}
