//! How threads wait: spin, then give way, then halt; and for how long a lock stays with those who run.
//!
//! A guest's vCPU that spins has a CPU of its own most of the time, and a kick costs what a few critical sections cost.
//! Threads outnumber their CPUs, so a spinner may well keep the holder off its CPU; and to wake a thread on an idle CPU costs
//! as much as a hundred short critical sections, more in a virtual machine. So:
//!
//! - A spin gives way ([`GIVE_WAY_AFTER`]) long before the waiter halts.
//! - **Turns**: a hybrid lock stays with running threads for about [`turn`], and only then goes through its queue. The head of
//!   the queue, once it is awake, naps for a part of that, then blocks overtaking. If it gets no CPU, the overtakers block it
//!   themselves when the turn is over ([`overtook`]). So a waiter in the queue is overtaken for at most one turn for each
//!   waiter before it and one for itself, plus one critical section each.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_locks::{Budget, Sharing};

/// The default of [`set_spin_threshold`].
pub const SPIN_THRESHOLD_DEFAULT: Budget = Budget(192);

/// The default of [`set_turn`].
pub const TURN_DEFAULT: Duration = Duration::from_millis(1);

/// From this iteration of a wait on, every second one lets another thread have the CPU. About 1.6 us on a CPU whose PAUSE
/// takes 25 ns: longer than a short critical section and the transfer of its lock.
pub(crate) const GIVE_WAY_AFTER: u32 = 64;

/// What part of a turn the head of the queue naps for. A timer is late by 50 us and more (the kernel's timer slack), so this
/// leaves room: the head should be up before the overtakers find that the turn is over.
const NAP_DIVISOR: u64 = 4;

static THRESHOLD: AtomicU32 = AtomicU32::new(SPIN_THRESHOLD_DEFAULT.0);
static TURN_NS: AtomicU64 = AtomicU64::new(TURN_DEFAULT.as_nanos() as u64);

/// How long a thread now spins before it halts.
#[inline]
pub fn spin_threshold() -> Budget {
    // ORDERING: Relaxed, here and below; settings.
    Budget(THRESHOLD.load(Relaxed))
}

/// Sets how long each thread of this process spins before it halts, from its next wait on.
///
/// # Units
/// Iterations of load, compare, PAUSE; from the 64th on, each second one yields the CPU instead of pausing.
pub fn set_spin_threshold(threshold: Budget) {
    THRESHOLD.store(threshold.0, Relaxed);
}

/// For how long running threads may overtake the head of a hybrid lock's queue.
pub fn turn() -> Duration {
    Duration::from_nanos(TURN_NS.load(Relaxed))
}

/// Sets for how long running threads of this process may overtake the head of a hybrid lock's queue. Shorter is fairer, longer
/// is faster.
pub fn set_turn(turn: Duration) {
    TURN_NS.store(u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}

/// How hybrid locks are shared. Newcomers and the head compete for about as long as a short critical section and a transfer
/// of the lock last. Behind the head nobody spins: their turn is far away.
pub(crate) const SHARING: Sharing = Sharing {
    newcomer: Budget(40),
    queued: Budget(0),
    courtesy: Budget(40),
};

/// The head of a queue leaves the lock to others for a while.
pub(crate) fn nap() {
    end_streak();
    thread::sleep(Duration::from_nanos(TURN_NS.load(Relaxed) / NAP_DIVISOR));
}

/// How long this thread has been overtaking.
#[derive(Clone, Copy)]
struct Streak {
    since: Instant,
    /// When the time was last looked at.
    looked: Instant,
    /// How many acquisitions lie between two looks.
    step: u32,
}

/// A look at the time costs as much as a short critical section: at most so many acquisitions lie between two.
const STEP_MAX: u32 = 64;
/// Looks come this often in a turn, if acquisitions do.
const LOOKS_PER_TURN: u32 = 16;

thread_local! {
    /// How many more acquisitions go by without a look at the time.
    static UNSEEN: Cell<u32> = const { Cell::new(0) };
    static STREAK: Cell<Option<Streak>> = const { Cell::new(None) };
}

/// The calling thread has overtaken a queue. True: it has done so for a turn, without waiting in between.
///
/// Counted over all locks together: a thread that overtakes at several is stopped sooner at each.
#[inline]
pub(crate) fn overtook() -> bool {
    match UNSEEN.get() {
        0 => look(),
        unseen => {
            UNSEEN.set(unseen - 1);
            false
        }
    }
}

#[cold]
fn look() -> bool {
    let now = Instant::now();
    let turn = turn();
    let step = match STREAK.get() {
        Some(streak) if now - streak.since >= turn => {
            end_streak();
            return true;
        }
        // Twice as many, if that many did not take long.
        Some(streak) if now - streak.looked < turn / LOOKS_PER_TURN => (2 * streak.step).min(STEP_MAX),
        _ => 1,
    };
    let since = STREAK.get().map_or(now, |streak| streak.since);
    STREAK.set(Some(Streak {
        since,
        looked: now,
        step,
    }));
    UNSEEN.set(step - 1);
    false
}

/// The calling thread waits: others have their chance.
pub(crate) fn end_streak() {
    STREAK.set(None);
    UNSEEN.set(0);
}
