//! A thread of an operating system as a CPU: how it waits, halts, and shares a lock with those who run.
//!
//! A guest's vCPU that spins has a CPU of its own most of the time, and a kick costs what a few critical sections cost.
//! Threads outnumber their CPUs, so a spinner may well keep the holder off its CPU; and to wake a thread on an idle CPU costs
//! as much as a hundred short critical sections, more in a virtual machine. So:
//!
//! - A spin gives way ([`GIVE_WAY_AFTER`]) long before the waiter halts.
//! - **Turns**: a hybrid lock stays with running threads for about a turn, and only then goes through its queue. The head of
//!   the queue, once it is awake, naps for a part of that, then blocks overtaking. If it gets no CPU, the overtakers block it
//!   themselves when the turn is over ([`Turns::overtook`]). So a waiter in the queue is overtaken for at most one turn for
//!   each waiter before it and one for itself, plus one critical section each.
//!
//! What the system beneath does is a [`Thread`]'s: the real one's calls on host threads, those of a simulated one in virtual
//! time. All else is here, once.
//!
//! | parker | |
//! |---|---|
//! | 0 | running, no kick pending |
//! | 1 | running, a kick is pending: the next halt returns at once |
//! | 2 | halted, or about to be |
//!
//! **Sticky kick**: only halt takes a 1 away, and it then returns. Only the owner writes 0 and 2, so the kicker's
//! exchange for 1 either finds 2, and wakes, or leaves what the owner's next exchange finds.

use core::cell::Cell;
use core::sync::atomic::Ordering::{self, AcqRel};

use crate::platform::{Budget, Platform, spin_until};
use crate::sharing::Sharing;

/// How many iterations a paravirtual waiter spins before it halts, unless somebody says otherwise.
pub const SPIN_THRESHOLD: Budget = Budget(192);

/// For how long running threads may overtake the head of a hybrid lock's queue, unless somebody says otherwise. Nanoseconds.
pub const TURN_NS: u64 = 1_000_000;

/// From this iteration of a wait on, every second one lets another thread have the CPU. About 1.6 us on a CPU whose PAUSE
/// takes 25 ns: longer than a short critical section and the transfer of its lock.
pub const GIVE_WAY_AFTER: u32 = 64;

/// What part of a turn the head of the queue naps for. A timer is late by 50 us and more (the kernel's timer slack), so this
/// leaves room: the head should be up before the overtakers find that the turn is over.
pub const NAP_DIVISOR: u64 = 4;

/// How hybrid locks are shared. Newcomers and the head compete for about as long as a short critical section and a transfer
/// of the lock last. Behind the head nobody spins: their turn is far away.
pub const SHARING: Sharing = Sharing {
    newcomer: Budget(40),
    queued: Budget(0),
    head: Budget(40),
};

/// A thread, with what it needs from the system beneath.
///
/// Nothing rests on these calls but time: each may return for no reason, except that a wake-up must not be lost that comes
/// after [`Thread::futex_wait`] has found its value.
pub trait Thread: Platform {
    /// Lets another thread have the CPU, if one wants it (`sched_yield`).
    fn give_way(&self);
    /// Sleeps until woken, unless `word` holds something else than `value` (FUTEX_WAIT).
    fn futex_wait(&self, word: &Self::Word, value: u32);
    /// Wakes one thread that sleeps on `word` (FUTEX_WAKE).
    fn futex_wake(&self, word: &Self::Word);
    /// Waits without giving way, for at most `budget` iterations: as [`Platform::wait_until`] by default.
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

/// [`Platform::wait_until`] of a thread: spins, and from the [64th](GIVE_WAY_AFTER) iteration on gives way in every second.
pub fn wait_until<T: Thread>(
    thread: &T,
    word: &T::Word,
    budget: Budget,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    /// The first iteration that gives way is the even one after the last that does not.
    const SPINS: u32 = GIVE_WAY_AFTER + 1;
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

/// The word on which one thread sleeps while it is halted. On a line of its own: only its thread and who kicks it touch it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Parker<W>(W);

impl<W> Parker<W> {
    /// Of a thread that runs; `word` is 0.
    pub const fn from_word(word: W) -> Self {
        Parker(word)
    }

    /// Sleeps until the next [`kick`](Parker::kick) of this parker, the calling thread's, or for less.
    pub fn halt<T: Thread<Word = W>>(&self, thread: &T) {
        // ORDERING: Acquire, here and below; pairs with the kicker's Release: what it did before the kick is seen. AcqRel
        // because a kick that is taken away must not be read as older than what this CPU wrote before.
        if thread.swap(&self.0, HALTED, AcqRel) == RUNNING {
            thread.futex_wait(&self.0, HALTED);
        }
        // ORDERING: AcqRel, as above. This takes the kick that ended the halt.
        thread.swap(&self.0, RUNNING, AcqRel);
    }

    /// Ends the halt of this parker's thread, or its next one; `thread` is the caller.
    pub fn kick<T: Thread<Word = W>>(&self, thread: &T) {
        // ORDERING: AcqRel; Release pairs with the Acquire in `halt`.
        if thread.swap(&self.0, KICKED, AcqRel) == HALTED {
            thread.futex_wake(&self.0);
        }
    }
}

/// How long a thread has been overtaking. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Streak {
    since: u64,
    /// When the time was last looked at.
    looked: u64,
    /// How many acquisitions lie between two looks.
    step: u32,
}

/// A look at the time costs as much as a short critical section: at most so many acquisitions lie between two.
const STEP_MAX: u32 = 64;
/// Looks come this often in a turn, if acquisitions do.
const LOOKS_PER_TURN: u64 = 16;

/// One thread's overtaking, counted over all locks together: a thread that overtakes at several is stopped sooner at each.
#[derive(Debug)]
pub struct Turns {
    /// How many more acquisitions go by without a look at the time.
    unseen: Cell<u32>,
    streak: Cell<Option<Streak>>,
}

impl Turns {
    /// Of a thread that has not overtaken anybody.
    pub const fn new() -> Self {
        Turns {
            unseen: Cell::new(0),
            streak: Cell::new(None),
        }
    }

    /// The thread has overtaken a queue; `look` tells the length of a turn and the time, in nanoseconds. True: it has done so
    /// for a turn, without waiting in between.
    #[inline]
    pub fn overtook(&self, look: impl FnOnce() -> (u64, u64)) -> bool {
        match self.unseen.get() {
            0 => {
                let (turn, now) = look();
                self.look(turn, now)
            }
            unseen => {
                self.unseen.set(unseen - 1);
                false
            }
        }
    }

    #[cold]
    fn look(&self, turn: u64, now: u64) -> bool {
        let streak = self.streak.get();
        let step = match streak {
            Some(streak) if now - streak.since >= turn => {
                self.end_streak();
                return true;
            }
            // Twice as many, if that many did not take long.
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

    /// The thread waits: others have their chance.
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

    use core::cell::Cell;
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::platform::Word;
    use crate::solo::{Solo, SoloWord};

    /// What a waiting thread did, in order: a bit for each iteration, 1 for giving way.
    struct Log {
        steps: Cell<u32>,
        gave_way: Cell<u128>,
    }

    std::thread_local! {
        static LOG: Log = const { Log { steps: Cell::new(0), gave_way: Cell::new(0) } };
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
        }
        fn futex_wait(&self, _: &SoloWord<u32>, _: u32) {}
        fn futex_wake(&self, _: &SoloWord<u32>) {}
        fn spin(
            &self,
            word: &SoloWord<u32>,
            budget: Budget,
            order: Ordering,
            until: impl Fn(u32) -> bool,
        ) -> Result<u32, u32> {
            let value = self.load(word, order);
            if until(value) {
                return Ok(value);
            }
            (0..budget.0).for_each(|_| step(false));
            Err(value)
        }
    }

    #[test]
    fn every_second_iteration_gives_way_from_the_64th_on_and_the_budget_is_kept() {
        for budget in [0, 1, 63, 64, 65, 66, 67, 68, 100, 127] {
            LOG.with(|log| {
                log.steps.set(0);
                log.gave_way.set(0);
            });
            let word = SoloWord::new(7);
            assert_eq!(wait_until(&Solo, &word, Budget(budget), Relaxed, |_| false), Err(7));
            let (steps, gave_way) = LOG.with(|log| (log.steps.get(), log.gave_way.get()));
            assert_eq!(steps, budget);
            for iteration in 1..=budget {
                let expected = iteration > GIVE_WAY_AFTER && iteration % 2 == 0;
                assert_eq!(
                    gave_way >> (iteration - 1) & 1 == 1,
                    expected,
                    "{iteration} of {budget}"
                );
            }
        }
    }

    #[test]
    fn who_overtakes_for_a_turn_is_told_to_stop_and_may_begin_anew() {
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
