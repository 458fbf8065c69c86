//! What is known about one lock: which thread holds it, and for how long it has been held.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{order, schedstat};
use crate::check::Stack;

/// The number of classes of hold times: class *n* has those below 2^n ns and not below half of it.
const CLASSES: usize = 40;

/// The record of a lock. All accesses to its numbers are Relaxed: they are read to be shown, and a lock that is held
/// exclusively orders the writes of its holders.
#[derive(Debug)]
pub struct Record {
    /// The number of the lock, or 0 before it is first used.
    id: AtomicU32,
    /// The number of threads that hold the lock.
    holders: AtomicU32,
    /// The thread that has taken the lock last, and when, in nanoseconds since the first acquisition of the process.
    thread: AtomicU64,
    since: AtomicU64,
    /// The time on run queues of that thread when it took the lock + 1, or 0 if it is not measured.
    delay: AtomicU64,
    /// The sum of the times for which holders had no CPU.
    preempted: AtomicU64,
    holds: [AtomicU64; CLASSES],
    stack: Mutex<Option<Stack>>,
}

/// One hold of a lock by one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    since: u64,
    delay: Option<u64>,
}

impl Record {
    pub(super) const fn new() -> Self {
        Record {
            id: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            thread: AtomicU64::new(0),
            since: AtomicU64::new(0),
            delay: AtomicU64::new(0),
            preempted: AtomicU64::new(0),
            holds: [const { AtomicU64::new(0) }; CLASSES],
            stack: Mutex::new(None),
        }
    }

    /// Returns the number of the lock, which gets one if it has none.
    pub(super) fn id(&self) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        match self.id.load(Relaxed) {
            0 => {
                let fresh = NEXT.fetch_add(1, Relaxed);
                match self.id.compare_exchange(0, fresh, Relaxed, Relaxed) {
                    Ok(_) => fresh,
                    Err(other) => other,
                }
            }
            id => id,
        }
    }

    /// Returns where the lock is.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn acquired(&self, stack: &Stack) -> Hold {
        let hold = Hold {
            since: now_ns(),
            delay: schedstat::mine(),
        };
        self.thread.store(thread(), Relaxed);
        self.since.store(hold.since, Relaxed);
        self.delay.store(hold.delay.map_or(0, |delay| delay + 1), Relaxed);
        *self.stack.lock().unwrap_or_else(PoisonError::into_inner) = Some(stack.clone());
        // ORDERING: Release, with the load of `look`: who sees a holder sees what is written of it.
        self.holders.fetch_add(1, Release);
        hold
    }

    pub(super) fn released(&self, hold: Hold) {
        let held = now_ns().saturating_sub(hold.since);
        self.holds[class(held)].fetch_add(1, Relaxed);
        if let (Some(before), Some(now)) = (hold.delay, schedstat::mine()) {
            self.preempted.fetch_add(now.saturating_sub(before), Relaxed);
        }
        self.holders.fetch_sub(1, Relaxed);
    }

    pub(super) fn look(&self) -> Look {
        // ORDERING: Acquire, with the count of `acquired`.
        let holder = (self.holders.load(Acquire) > 0).then(|| {
            let thread = self.thread.load(Relaxed);
            let before = self.delay.load(Relaxed).checked_sub(1);
            let waited = before.and_then(|before| Some(schedstat::of_thread(thread)?.saturating_sub(before)));
            Holder {
                thread,
                held: Duration::from_nanos(now_ns().saturating_sub(self.since.load(Relaxed))),
                preempted: waited.map(Duration::from_nanos),
                stack: self.stack.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            }
        });
        Look {
            name: order::name_of(self.id()),
            holder,
            preempted: Duration::from_nanos(self.preempted.load(Relaxed)),
            holds: Histogram(self.holds.each_ref().map(|count| count.load(Relaxed))),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        if id != 0 {
            order::forget(id);
        }
    }
}

/// What is known about a lock at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The lock's name, or its number.
    pub name: String,
    /// The thread that holds the lock: of several readers the last one that came.
    pub holder: Option<Holder>,
    /// For how long holders were ready to run but had no CPU, all of them together, without the present one; see
    /// [`measure_preemption`](super::measure_preemption).
    pub preempted: Duration,
    /// For how long the lock has been held.
    pub holds: Histogram,
}

/// A thread that holds a lock.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The thread's number: on Linux that of the system (`gettid`).
    pub thread: u64,
    /// For how long it has held the lock.
    pub held: Duration,
    /// For how long it was ready to run but had no CPU since it took the lock, or `None` if that is not measured.
    pub preempted: Option<Duration>,
    /// Where it took the lock.
    pub stack: Option<Stack>,
}

/// How often a lock was held for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram([u64; CLASSES]);

impl Histogram {
    /// Returns how often the lock was held and given back.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns, for each class that is not empty, the time below which its holds were, and how many there were. A class
    /// reaches from half of that time to that time; the last one has all longer holds, too.
    pub fn classes(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let classes = (0..).zip(self.0).filter(|&(_, count)| count > 0);
        classes.map(|(class, count)| (Duration::from_nanos(1 << class), count))
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.holder {
            None => writeln!(f, "free")?,
            Some(holder) => {
                write!(f, "held by thread {} for {:?}", holder.thread, holder.held)?;
                if let Some(preempted) = holder.preempted {
                    write!(f, ", of which it had no CPU for {preempted:?}")?;
                }
                writeln!(f)?;
                if let Some(stack) = &holder.stack {
                    write!(f, "  taken at\n{stack}")?;
                }
            }
        }
        for (below, count) in self.holds.classes() {
            writeln!(f, "  held for less than {below:?}: {count}")?;
        }
        if !self.preempted.is_zero() {
            writeln!(f, "  holders had no CPU for {:?}", self.preempted)?;
        }
        Ok(())
    }
}

fn class(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(CLASSES - 1)
}

fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the number of the calling thread: the system's on Linux, otherwise one of ours.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: u64 = system_thread().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed)));
    // In the last destructors of a thread its number is gone.
    MINE.try_with(|&mine| mine).unwrap_or(0)
}

/// Reads the link to the folder of the calling thread: "PID/task/TID".
fn system_thread() -> Option<u64> {
    let folder = std::fs::read_link("/proc/thread-self").ok()?;
    folder.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_reaches_from_half_its_time_to_its_time() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(class), [0, 1, 2, 2, 3, 10, 11]);
        assert_eq!(class(u64::MAX), CLASSES - 1);
        let mut counts = [0; CLASSES];
        counts[10] = 3;
        let classes: Vec<_> = Histogram(counts).classes().collect();
        assert_eq!(classes, [(Duration::from_nanos(1024), 3)]);
    }
}
