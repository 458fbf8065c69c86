//! When unlocks are exchanges although threads have compare-stores.
//!
//! A compare-store saves an unlock its locked instruction: 4 ns, and more if that waits for the cache line. In return
//! each waiter that is about to sleep has to settle ([`Platform::settle`](crate::Platform::settle)): it interrupts all
//! running threads of the process. That takes 13 us in a virtual machine of two CPUs, and the interrupted thread loses
//! as much. A lock for which threads sleep seldom is better off with compare-stores, and one for which they sleep every
//! time is not.
//!
//! **Trials**: the first waiter that settles makes all unlocks of the process exchanges. From then on the unlocks are
//! counted, and the waiters that need not settle any more. Once there are too many unlocks for each of these waiters,
//! the unlocks are compare-stores again, until a number of waiters has settled: then the next trial begins. So a trial
//! in vain costs little more than the settling of a few of these waiters.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// As many exchanges instead of compare-stores cost as much as one settling waiter. Measured with 16 threads on two
/// CPUs: with 4096, unlocks that wait for their line made the lock slower.
const EXCHANGES_PER_SETTLE: u32 = 512;

/// The number of exchanges after which they are compared with the waiters.
const TRIAL: u32 = 16_384;

/// The number of waiters that settle between two trials.
const SETTLES_BETWEEN_TRIALS: u32 = 1024;

/// The number of its exchanges after which a thread adds them to those of the process.
const BATCH: u32 = 1024;

/// The trials of one process. Its figures only decide what is faster: no exclusion rests on them, and threads that
/// change them at the same time may lose a few counts. It is on a cache line of its own: waiters write it, and each
/// unlock reads what may lie next to it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Changeover {
    /// Waiters that are to settle before the next trial.
    left: AtomicU32,
    /// Waiters that did not have to settle since exchanges were last compared with them.
    spared: AtomicU32,
    exchanges: AtomicU32,
}

// ORDERING: Relaxed, all; see the type.
impl Changeover {
    /// Makes the record of a process in which no waiter has settled.
    pub const fn new() -> Self {
        Changeover {
            left: AtomicU32::new(0),
            spared: AtomicU32::new(0),
            exchanges: AtomicU32::new(0),
        }
    }

    /// Records that a waiter settles because unlocks are compare-stores. Returns whether they should be exchanges from
    /// now on.
    pub fn settles(&self) -> bool {
        if let Some(left) = self.left.load(Relaxed).checked_sub(1) {
            self.left.store(left, Relaxed);
            return false;
        }
        self.compare_anew();
        true
    }

    /// Records that a waiter need not settle because unlocks are exchanges.
    pub fn spares(&self) {
        self.spared.fetch_add(1, Relaxed);
    }

    /// Records an unlock by an exchange; `thread` is the count of the calling thread. Returns whether unlocks should be
    /// compare-stores from now on.
    pub fn exchanges(&self, thread: &Batch) -> bool {
        let batch = thread.0.get() + 1;
        thread.0.set(batch % BATCH);
        if batch < BATCH {
            return false;
        }
        let exchanges = self.exchanges.fetch_add(BATCH, Relaxed) + BATCH;
        if exchanges < TRIAL {
            return false;
        }
        let too_many = exchanges / EXCHANGES_PER_SETTLE > self.spared.load(Relaxed);
        self.compare_anew();
        if too_many {
            self.left.store(SETTLES_BETWEEN_TRIALS, Relaxed);
        }
        too_many
    }

    fn compare_anew(&self) {
        self.spared.store(0, Relaxed);
        self.exchanges.store(0, Relaxed);
    }
}

impl Default for Changeover {
    fn default() -> Self {
        Changeover::new()
    }
}

/// The exchanges of one thread that are not yet among those of its process.
#[derive(Debug)]
pub struct Batch(Cell<u32>);

impl Batch {
    /// Makes the count of a thread that has not unlocked by an exchange.
    pub const fn new() -> Self {
        Batch(Cell::new(0))
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

// Without Miri, in which a trial takes minutes.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Returns after how many exchanges unlocks are compare-stores again, if a waiter is spared after each `each` of
    /// them; `None` if that is after more than ten trials.
    fn lasts(changeover: &Changeover, each: u32) -> Option<u32> {
        let thread = Batch::new();
        (1..=10 * TRIAL).find(|exchange| {
            if exchange.is_multiple_of(each) {
                changeover.spares();
            }
            changeover.exchanges(&thread)
        })
    }

    #[test]
    fn exchanges_last_while_they_cost_less_than_the_waiters_that_they_spare() {
        for (each, expected) in [
            (1, None),
            (EXCHANGES_PER_SETTLE - 1, None),
            (EXCHANGES_PER_SETTLE + 300, Some(TRIAL)),
            (u32::MAX, Some(TRIAL)),
        ] {
            let changeover = Changeover::new();
            assert!(changeover.settles(), "the first waiter begins a trial");
            assert_eq!(lasts(&changeover, each), expected, "a waiter for {each} exchanges");
        }
    }

    #[test]
    fn a_trial_begins_after_a_number_of_waiters_and_from_zero() {
        let changeover = Changeover::new();
        assert!(changeover.settles());
        (0..100).for_each(|_| changeover.spares());
        assert_eq!(
            lasts(&changeover, u32::MAX),
            Some(2 * TRIAL),
            "100 waiters pay for one round"
        );
        for settles in 0..SETTLES_BETWEEN_TRIALS {
            assert!(!changeover.settles(), "after {settles} waiters");
        }
        changeover.spares();
        assert!(changeover.settles());
        assert_eq!(changeover.spared.load(Relaxed), 0);
    }

    #[test]
    fn threads_count_together() {
        let (changeover, threads) = (Changeover::new(), [Batch::new(), Batch::new(), Batch::new()]);
        let last = (1..).find(|unlock| changeover.exchanges(&threads[*unlock as usize % 3]));
        let expected = TRIAL..=TRIAL + 3 * BATCH;
        assert!(last.is_some_and(|last: u32| expected.contains(&last)), "{last:?}");
    }
}
